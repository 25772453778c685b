// State of a folder of checkpoints after runs were killed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace kills {

// Thrown when a check fails. `what` names the violated condition.
struct Broken {
  std::string what;
};

// Returns the published checkpoints by step.
std::map<int64_t, std::string> published(const std::filesystem::path& folder);

// Returns a text of the final state: checksums of parameters and optimizer state of the last checkpoint,
// metrics without timings, and the best checkpoint.
std::string end_of(const std::filesystem::path& folder);

// Throws Broken if LATEST or LOWEST_VAL does not point to a complete checkpoint.
void check_pointers(const std::filesystem::path& folder);

// Calls check_pointers(), and throws Broken if any checkpoint is incomplete.
void check_whole(const std::filesystem::path& folder);

}  // namespace kills

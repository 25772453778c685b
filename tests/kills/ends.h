// What a folder of checkpoints has come to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace kills {

// What should have been true and was not.
struct Broken {
  std::string what;
};

// Published checkpoints, by their steps.
std::map<int64_t, std::string> published(const std::filesystem::path& folder);

// The parameters and the optimizer's state of the last, as the checksums of their manifests say, the metrics
// without what a clock decides, and the best.
std::string end_of(const std::filesystem::path& folder);

// Throws Broken where LATEST or LOWEST_VAL is a link to no complete checkpoint.
void check_pointers(const std::filesystem::path& folder);

// The same, and where a checkpoint is not whole.
void check_whole(const std::filesystem::path& folder);

}  // namespace kills

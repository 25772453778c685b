// Finds models and data sets by their Hugging Face hub names on this machine.
#pragma once

#include <filesystem>
#include <string>

namespace heddle {

// Kind of a hub name.
enum class HubKind { model, dataset };

// Returns the directory of a name: the path itself if it exists; else the path in a line `NAME PATH` of the
// file that the environment variable HEDDLE_PLACES names; else the snapshot of a revision (empty: main) in
// the hub's cache ($HF_HUB_CACHE, else $HF_HOME/hub, else ~/.cache/huggingface/hub); else the name itself.
// Downloads nothing. Throws Error{input} if the file of HEDDLE_PLACES cannot be read.
std::filesystem::path hub_directory(const std::filesystem::path& name, HubKind kind,
                                    const std::string& revision = "");

// Returns a hint with the other places that were searched and the download command; empty: the name cannot be
// a hub name.
std::string hub_directory_hint(const std::filesystem::path& name, HubKind kind);

}  // namespace heddle

// Models and data sets by their names on the Hugging Face hub, found on this machine.
#pragma once

#include <filesystem>
#include <string>

namespace heddle {

// What a name may stand for.
enum class HubKind { model, dataset };

// The directory of a name, in this order: a path that exists; a line `NAME PATH` of the file that the
// environment variable HEDDLE_PLACES names; the snapshot of the hub's cache ($HF_HUB_CACHE, else
// $HF_HOME/hub, else ~/.cache/huggingface/hub) of a revision; empty: of main. Else the name itself. Nothing
// is downloaded. Throws Error{input} where HEDDLE_PLACES cannot be read.
std::filesystem::path hub_directory(const std::filesystem::path& name, HubKind what,
                                    const std::string& revision = "");

// Where else than at the path itself it was looked for, and the command that brings it; empty: the name
// cannot be of the hub.
std::string hub_directory_hint(const std::filesystem::path& name, HubKind what);

}  // namespace heddle

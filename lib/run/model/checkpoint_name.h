// Names of checkpoints: epoch_E_step_S.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace heddle {

// Returns the last step of a checkpoint from its name; empty if the name has another form.
std::optional<int64_t> steps_of(const std::filesystem::path& checkpoint);

// Whether the entry is a link to a checkpoint name, or a regular file that contains only such a name: LATEST
// and LOWEST_VAL in either form.
bool is_checkpoint_pointer(const std::filesystem::path& entry);

}  // namespace heddle

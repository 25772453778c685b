// The names of a run's checkpoints: epoch_E_step_S.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace heddle {

// The last step of a checkpoint, by its name alone; empty: it has another name.
std::optional<int64_t> steps_of(const std::filesystem::path& checkpoint);

// Whether a link leads to a checkpoint's name, or a regular file holds one and nothing else: LATEST and
// LOWEST_VAL in either form.
bool is_checkpoint_pointer(const std::filesystem::path& entry);

}  // namespace heddle

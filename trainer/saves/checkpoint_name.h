// The names of a run's checkpoints: epoch_E_step_S.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace heddle {

// The last step of a checkpoint, by its name alone; empty: it has another name.
std::optional<int64_t> steps_of(const std::filesystem::path& checkpoint);

}  // namespace heddle

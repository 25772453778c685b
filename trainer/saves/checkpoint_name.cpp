// Reading the name of a checkpoint.
#include "trainer/saves/checkpoint_name.h"

#include <string>
#include <vector>

#include "core/base/pattern.h"

namespace heddle {

std::optional<int64_t> steps_of(const std::filesystem::path& checkpoint) {
  static const text::Pattern kName("epoch_[0-9]{1,18}_step_([0-9]{1,18})");
  const std::vector<std::string> parts = kName.match(checkpoint.filename().string());
  return parts.empty() ? std::nullopt : std::optional(std::stoll(parts[1]));
}

}  // namespace heddle

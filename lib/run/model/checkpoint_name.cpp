// Parses checkpoint names.
#include "lib/run/model/checkpoint_name.h"

#include <string>
#include <system_error>
#include <vector>

#include "core/base/pattern.h"
#include "core/base/regular_file.h"

namespace heddle {

std::optional<int64_t> steps_of(const std::filesystem::path& checkpoint) {
  static const text::Pattern kName("epoch_[0-9]{1,18}_step_([0-9]{1,18})");
  const std::vector<std::string> parts = kName.match(checkpoint.filename().string());
  return parts.empty() ? std::nullopt : std::optional(std::stoll(parts[1]));
}

bool is_checkpoint_pointer(const std::filesystem::path& entry) {
  std::error_code missing;
  const std::filesystem::path target = std::filesystem::read_symlink(entry, missing);
  if (!missing) return steps_of(target).has_value();
  constexpr size_t kLongest = 100;
  std::string name = read_beginning(entry, kLongest);
  while (name.ends_with('\n')) name.pop_back();
  return name.find('/') == name.npos && steps_of(name).has_value();
}

}  // namespace heddle

// First fit, and joining what is free side by side.
#include "lib/transport/shm/shm_extents.h"

#include <algorithm>
#include <iterator>

namespace heddle::mesh {

std::optional<size_t> Extents::take(size_t bytes) {
  const auto found =
      std::find_if(free_.begin(), free_.end(), [&](const auto& one) { return one.second >= bytes; });
  if (found == free_.end()) return std::nullopt;
  const auto [start, length] = *found;
  free_.erase(found);
  if (length > bytes) free_[start + bytes] = length - bytes;
  taken_ += bytes;
  return start;
}

void Extents::give(size_t start, size_t bytes) {
  taken_ -= bytes;
  auto here = free_.emplace(start, bytes).first;
  const auto next = std::next(here);
  if (next != free_.end() && start + bytes == next->first) {
    here->second += next->second;
    free_.erase(next);
  }
  if (here == free_.begin()) return;
  const auto before = std::prev(here);
  if (before->first + before->second != start) return;
  before->second += here->second;
  free_.erase(here);
}

}  // namespace heddle::mesh

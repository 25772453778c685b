// Assigns boxes to the ranks that hold them.
#include "lib/checkpoint/sharded/assign_writers.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace heddle::checkpoint {

std::vector<int> assign_writers(std::span<const Held> boxes, int ranks) {
  std::vector<size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tuple(boxes[a].ranks.size(), boxes[b].bytes) <
           std::tuple(boxes[b].ranks.size(), boxes[a].bytes);
  });
  std::vector<uint64_t> load(static_cast<size_t>(ranks), 0);
  std::vector<int> writer(boxes.size());
  for (const size_t i : order) {
    const auto lighter = [&](int a, int b) { return load[a] < load[b]; };
    writer[i] = *std::min_element(boxes[i].ranks.begin(), boxes[i].ranks.end(), lighter);
    load[writer[i]] += boxes[i].bytes;
  }
  return writer;
}

int64_t cuts(const Held& box, int64_t rows, uint64_t total, int ranks) {
  if (box.ranks.size() < 2 || rows < 2) return 1;
  const uint64_t limit = std::max(kLeastCut, total / static_cast<uint64_t>(ranks) / 16);
  return std::min(rows, static_cast<int64_t>((box.bytes + limit - 1) / limit));
}

}  // namespace heddle::checkpoint

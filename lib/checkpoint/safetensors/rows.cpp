// Dealing rows.
#include "lib/checkpoint/safetensors/rows.h"

#include <algorithm>

namespace heddle::checkpoint {
namespace {

// Calls `visit(rows, bytes)` for every stretch, in the order of the files.
template <class Visit>
void for_each_stretch(std::span<const std::vector<TensorToWrite>> files, uint64_t most, const Visit& visit) {
  for (size_t file = 0; file < files.size(); ++file) {
    uint64_t at = 0;
    for (size_t i = 0; i < files[file].size(); ++i) {
      const TensorToWrite& tensor = files[file][i];
      const uint64_t bytes = tensor.bytes();
      if (bytes == 0) continue;
      const int64_t rows = tensor.shape.empty() ? 1 : tensor.shape[0];
      const uint64_t row = bytes / static_cast<uint64_t>(rows);
      const auto some = static_cast<int64_t>(std::max<uint64_t>(1, most / row));
      for (int64_t first = 0; first < rows; first += some) {
        const int64_t count = std::min(some, rows - first);
        visit(Rows{file, i, first, count, at + static_cast<uint64_t>(first) * row},
              static_cast<uint64_t>(count) * row);
      }
      at += bytes;
    }
  }
}

}  // namespace

std::vector<Rows> deal_rows(std::span<const std::vector<TensorToWrite>> files, uint64_t most, int rank,
                            int ranks) {
  uint64_t total = 0, before = 0;
  for (const auto& file : files)
    for (const TensorToWrite& tensor : file) total += tensor.bytes();
  // Small enough that small models are shared as well.
  const uint64_t share = total / static_cast<uint64_t>(ranks);
  std::vector<Rows> out;
  for_each_stretch(files, std::min(most, std::max<uint64_t>(1, share / 4)), [&](Rows rows, uint64_t bytes) {
    const double middle = static_cast<double>(before) + static_cast<double>(bytes) / 2;
    before += bytes;
    if (static_cast<int>(middle / static_cast<double>(total) * ranks) == rank) out.push_back(rows);
  });
  return out;
}

}  // namespace heddle::checkpoint

// Blocks by the number of their scores.
#include "lib/nn/attention/query_blocks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <algorithm>
#include <limits>

#include "lib/nn/cpu/attend_tile_cpu.h"

namespace heddle::model {
namespace {

constexpr int64_t kScores = int64_t{1} << 25;  // of a block: 128 MiB in float32
constexpr int64_t kMostQueries = 1024;

}  // namespace

std::vector<QueryBlock> query_blocks(const at::Tensor& seen, int64_t heads) {
  const auto* ranges = reinterpret_cast<const KeyRange*>(seen.const_data_ptr<int32_t>());
  std::vector<QueryBlock> out;
  for (int64_t first = 0; first < seen.size(0);) {
    int64_t begin = std::numeric_limits<int64_t>::max(), end = 0, count = 0;
    for (; first + count < seen.size(0) && count < kMostQueries; ++count) {
      const KeyRange& next = ranges[first + count];
      if (next.begin >= next.end) continue;
      const int64_t from = std::min<int64_t>(begin, next.begin), to = std::max<int64_t>(end, next.end);
      if (count > 0 && heads * (count + 1) * (to - from) > kScores) break;
      begin = from;
      end = to;
    }
    if (end > 0) out.push_back({first, count, begin, end - begin});
    first += count;
  }
  return out;
}

at::Tensor outside(const at::Tensor& seen, const QueryBlock& block) {
  const at::Tensor of_block = seen.narrow(0, block.first, block.count);
  const at::Tensor key = at::arange(block.begin, block.begin + block.keys, of_block.options());
  return key.lt(of_block.select(1, 0).unsqueeze(1)).logical_or_(key.ge(of_block.select(1, 1).unsqueeze(1)));
}

}  // namespace heddle::model

// Blocks of queries whose scores fit into memory, and the keys that their queries do not see.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace heddle::model {

// Queries [first, first + count) and keys [begin, begin + keys): all that one of the queries sees.
struct QueryBlock {
  int64_t first, count, begin, keys;
};

// seen: as BlockedInputs::seen, on the host. A block has at most 2^25 scores of all heads, but for a block of
// one query. Queries that see nothing may be in no block.
std::vector<QueryBlock> query_blocks(const at::Tensor& seen, int64_t heads);

// bool [count, keys]: true where a key is outside the range of a query. seen: of all queries, on any device.
at::Tensor outside(const at::Tensor& seen, const QueryBlock& block);

}  // namespace heddle::model

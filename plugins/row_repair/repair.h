// Replacement of rows of the input embedding that are nearly zero or not finite, while the model's values are
// read.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/parallel/shard.h"

namespace heddle::row_repair {

struct Config {
  bool enabled = true;
  double min_norm = 1e-6;
  int64_t max_rows = 256;
};

// Input and output embedding of the run's model, [vocabulary, width]. If `output` is the same parameter,
// damaged rows cannot be repaired.
struct Embeddings {
  std::string input, output, where;
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
};

// Wraps `source`. A row of the input embedding whose norm is at most min_norm or not finite is replaced by
// the output row of its token, scaled to the root mean square of the norms of all other input rows. Norms are
// computed over whole rows in float64, from values in `dtype`, so every topology gets the same rows. They are
// computed once, when a box of the embedding is first read. Throws Error{input} if more than max_rows rows or
// all rows are damaged, or if the output rows are damaged too.
ParameterSource repaired(ParameterSource source, const Embeddings& embeddings, const Config& config);

}  // namespace heddle::row_repair

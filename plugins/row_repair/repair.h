// Input embedding rows that are nearly zero or not finite, replaced while the model's values are read.
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

// Both are of the run's model, [vocabulary, width]. `output` may be the same parameter: then no row has
// another to take its direction from.
struct Embeddings {
  std::string input, output, where;
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
};

// A source that gives the same values as `source`, but for the rows of the input embedding whose norm is at
// most min_norm, or not finite: such a row is the output row of its token, scaled to the root mean square of
// the norms of all other input rows. Norms are over whole rows in float64, of values in `dtype`; so every
// topology gets the same rows. They are measured once, when a box of the embedding is first read. Throws
// Error{input} where the damage is in more than max_rows rows, in all rows, or in the output rows too.
ParameterSource repaired(ParameterSource source, const Embeddings& embeddings, const Config& config);

}  // namespace heddle::row_repair

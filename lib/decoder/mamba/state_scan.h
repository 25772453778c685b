// The state space rule of Mamba-2 as a layer: steps, decays, documents, the direct path; one autograd node.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>

#include "heddle/base/export.h"
#include "lib/decoder/recurrence/short_convolution.h"

namespace heddle::decoder {

// Neighbouring heads, as many for each group, share b and c.
struct ScanHeads {
  int64_t groups = 1, heads = 1;  // of this rank
  int64_t state = 1, width = 1;   // of a group's b and c, of a head's x
  double shortest = 0, longest = std::numeric_limits<double>::infinity();  // steps are cut to this range
};

struct ScanInputs {
  at::Tensor x;            // [tokens, heads * width]
  at::Tensor b, c;         // [tokens, groups * state]
  at::Tensor dt;           // [tokens, heads]
  at::Tensor a_log, bias;  // [heads]: bias is dt_bias
  at::Tensor direct;       // [heads]: D
};

// Tokens of a chunk.
inline constexpr int64_t kScanChunk = 64;

// The rule of state_chunks.h with the step softplus(dt + bias), cut to its range, and the decay
// -exp(a_log) * step, and direct * x added. A document begins with a state of zeros. All in fp32 (fp64 for
// fp64); returns [tokens, heads * width] in x's dtype. The node keeps the inputs, and computes the states
// again in the backward.
// `state`: where defined, [heads, state, width], the state before the first token of one row, which becomes
// the state after the last; without gradients.
HEDDLE_API at::Tensor state_scan(const ScanInputs& in, const ScanHeads& heads, const TokenRows& tokens,
                                 at::Tensor* state = nullptr);

}  // namespace heddle::decoder

// State space rule of Mamba-2 as one autograd node: steps, decays, documents, the direct path.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>

#include "heddle/base/export.h"
#include "lib/decoder/recurrence/short_convolution.h"

namespace heddle::decoder {

// Neighbouring heads share b and c of a group; all groups have equal numbers of heads.
struct ScanHeads {
  int64_t groups = 1, heads = 1;  // of this rank
  int64_t state = 1, width = 1;   // width of a group's b and c; width of a head's x
  double shortest = 0, longest = std::numeric_limits<double>::infinity();  // range to which steps are clamped
};

struct ScanInputs {
  at::Tensor x;            // [tokens, heads * width]
  at::Tensor b, c;         // [tokens, groups * state]
  at::Tensor dt;           // [tokens, heads]
  at::Tensor a_log, bias;  // [heads]: bias is dt_bias
  at::Tensor direct;       // [heads]: D
};

// Tokens per chunk.
inline constexpr int64_t kScanChunk = 64;

// The rule of state_chunks.h with the step softplus(dt + bias), clamped to its range, the decay -exp(a_log) *
// step, and direct * x added. Each document starts with a zero state. Computed in fp32 (fp64 for fp64);
// returns [tokens, heads * width] in x's dtype. The node keeps the inputs, and the backward recomputes the
// states.
// `state`: if defined, [heads, state, width], the state before the first token of one row; it is replaced by
// the state after the last token. Without gradients.
HEDDLE_API at::Tensor state_scan(const ScanInputs& in, const ScanHeads& heads, const TokenRows& tokens,
                                 at::Tensor* state = nullptr);

}  // namespace heddle::decoder

// The tokens of each expert as rows: sorted by expert, in the order of the tokens within one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "heddle/base/export.h"

namespace heddle::model {

// A slot is one of the k choices of a token: slot = token * k + choice.
struct ExpertRows {
  std::vector<int64_t>
      begins;         // [experts + 1], on the host: the rows of expert e are begins[e] .. begins[e + 1]
  at::Tensor tokens;  // int64 [rows]: the token of each row
  at::Tensor slots;   // int64 [rows]: the slot of each row
  at::Tensor rows;    // int64 [tokens * k]: the row of each slot; -1: it has no expert
  int64_t count() const { return begins.back(); }
  int64_t of(int64_t expert) const { return begins[expert + 1] - begins[expert]; }
};

// From the chosen experts [tokens, k] (int64; -1: none here). Reads the counts on the host once, on any
// device. On meta every expert gets the same number. Throws Error{internal} for an expert that does not
// exist.
HEDDLE_API ExpertRows sort_by_expert(const at::Tensor& chosen, int64_t experts);

// The rows of x [tokens, width]: [rows, width].
HEDDLE_API at::Tensor take_rows(const at::Tensor& x, const ExpertRows& rows);

// The sum of each token's rows, in the order of its choices: [rows, width] to [tokens, width]. Zeros for a
// token without a row.
HEDDLE_API at::Tensor combine_rows(const at::Tensor& of_rows, const ExpertRows& rows, int64_t tokens);

}  // namespace heddle::model

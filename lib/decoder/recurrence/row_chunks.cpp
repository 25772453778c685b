// Views and copies between rows and chunks.
#include "lib/decoder/recurrence/row_chunks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "lib/decoder/recurrence/document_marks.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {

namespace {

int64_t power_of_two(int64_t least) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(least)));
}

}  // namespace

RowChunks::RowChunks(int64_t groups, int64_t heads, const TokenRows& tokens, int64_t longest, bool halves)
    : groups_(groups),
      heads_(heads),
      tokens_(tokens),
      length_(std::min(longest, halves ? power_of_two(tokens.sequence) : tokens.sequence)),
      count_((tokens.sequence + length_ - 1) / length_) {}

at::Tensor RowChunks::filled(const at::Tensor& x) const {
  at::Tensor rows =
      x.reshape({tokens_.rows, tokens_.sequence, x.size(1)}).to(model::accumulation_dtype(x.scalar_type()));
  const int64_t more = count_ * length_ - tokens_.sequence;
  if (more > 0) rows = at::constant_pad_nd(rows, {0, 0, 0, more});
  return rows.view({tokens_.rows, count_, length_, x.size(1)});
}

at::Tensor RowChunks::shared(const at::Tensor& x) const {
  return filled(x).unflatten(-1, {groups_, -1}).permute({0, 3, 1, 2, 4}).contiguous();
}

at::Tensor RowChunks::of_heads(const at::Tensor& x) const {
  return filled(x).unflatten(-1, {groups_, heads_, -1}).permute({0, 3, 4, 1, 2, 5}).contiguous();
}

at::Tensor RowChunks::cut(const at::Tensor& x, at::ScalarType dtype) const {
  const at::Tensor rows = x.reshape({tokens_.rows, count_ * length_, -1});
  return rows.narrow(1, 0, tokens_.sequence).reshape({tokens_.rows * tokens_.sequence, -1}).to(dtype);
}

at::Tensor RowChunks::rows_of_shared(const at::Tensor& x, at::ScalarType dtype) const {
  return cut(x.permute({0, 2, 3, 1, 4}), dtype);
}

at::Tensor RowChunks::rows_of_heads(const at::Tensor& x, at::ScalarType dtype) const {
  return cut(x.permute({0, 3, 4, 1, 2, 5}), dtype);
}

ChunkMarks RowChunks::marks(const at::TensorOptions& like) const {
  if (!tokens_.documents.defined()) return {};
  at::Tensor document = marks_of(tokens_.documents, tokens_.rows, tokens_.sequence, like).document;
  const at::Tensor last = document.narrow(1, tokens_.sequence - 1, 1);
  if (const int64_t more = count_ * length_ - tokens_.sequence; more > 0)
    document = at::cat({document, last.expand({tokens_.rows, more})}, 1);
  document = document.view({tokens_.rows, 1, 1, count_, length_});
  const at::Tensor at_end = document.narrow(-1, length_ - 1, 1);
  const at::Tensor before =
      at::cat({document.narrow(3, 0, 1).narrow(4, 0, 1), at_end.narrow(3, 0, count_ - 1)}, 3);
  return {document.unsqueeze(-1) == document.unsqueeze(-2), document == before, document == at_end,
          (before == at_end).squeeze(-1)};
}

}  // namespace heddle::decoder

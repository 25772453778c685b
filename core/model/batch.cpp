// Document boundaries: their rule, and the part of them that belongs to some rows.
#include "heddle/model/batch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/any.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <span>
#include <string>

#include "heddle/base/error.h"

namespace heddle {
namespace {

std::span<const int32_t> offsets_of(const at::Tensor& host) {
  return {host.const_data_ptr<int32_t>(), static_cast<size_t>(host.numel())};
}

[[noreturn]] void refuse_documents(const std::string& fault) {
  throw Error(
      ErrorCode::input, "batch", "Batch::documents " + fault,
      "give int32 offsets: 0, where each further document begins in the tokens of all rows laid end to "
      "end, and the number of tokens; every row begins a document");
}

}  // namespace

at::Tensor positions_of(const Batch& batch) {
  if (batch.positions.defined()) return batch.positions;
  const int64_t rows = batch.tokens.size(0), length = batch.tokens.size(1);
  if (!batch.documents.defined() || batch.documents.is_meta())
    return at::arange(length, batch.tokens.options().dtype(at::kLong)).expand({rows, length});
  const at::Tensor host = batch.documents.to(at::kCPU).contiguous();
  const std::span<const int32_t> offsets = offsets_of(host);
  const bool on_gpu = batch.tokens.is_cuda();  // the host does not wait for the copy
  const at::Tensor positions = at::empty({rows, length}, at::TensorOptions(at::kLong).pinned_memory(on_gpu));
  int64_t* const to = positions.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i + 1 < offsets.size(); ++i)
    for (int64_t token = offsets[i]; token < offsets[i + 1]; ++token) to[token] = token - offsets[i];
  return positions.to(batch.tokens.device(), /*non_blocking=*/on_gpu);
}

int64_t text_tokens_of(const Batch& batch) {
  if (!batch.padding.defined() || batch.padding.is_meta()) return batch.tokens.numel();
  return batch.tokens.numel() - batch.padding.sum().item<int64_t>();
}

void check_documents(const Batch& batch) {
  if (!batch.documents.defined()) return;
  if (batch.documents.scalar_type() != at::kInt || batch.documents.dim() != 1 || batch.documents.numel() < 2)
    refuse_documents("is not an int32 tensor of one dim with two or more elements");
  if (!batch.tokens.defined() || batch.tokens.dim() != 2)
    refuse_documents("is given without tokens of [batch, sequence]");
  const at::Tensor host = batch.documents.to(at::kCPU).contiguous();
  const std::span<const int32_t> offsets = offsets_of(host);
  const int64_t sequence = whole_sequence_of(batch), tokens = batch.tokens.size(0) * sequence;
  if (offsets.front() != 0)
    refuse_documents("begins with " + std::to_string(offsets.front()) + ", not with 0");
  if (offsets.back() != tokens)
    refuse_documents("ends with " + std::to_string(offsets.back()) + ", and the batch has " +
                     std::to_string(tokens) + " tokens");
  const auto descent = std::adjacent_find(offsets.begin(), offsets.end(), std::greater_equal<>());
  if (descent != offsets.end())
    refuse_documents("does not ascend: " + std::to_string(descent[0]) + " is followed by " +
                     std::to_string(descent[1]));
  for (int64_t row = 1; row < batch.tokens.size(0); ++row)
    if (!std::binary_search(offsets.begin(), offsets.end(), static_cast<int32_t>(row * sequence)))
      refuse_documents("has a document that reaches from row " + std::to_string(row - 1) + " into row " +
                       std::to_string(row));
}

void check_padding(const Batch& batch) {
  const at::Tensor& padding = batch.padding;
  if (!padding.defined() || padding.is_meta()) return;
  const auto refuse = [](const std::string& fault) {
    throw Error(ErrorCode::input, "batch", "Batch::padding " + fault,
                "give bool [batch, sequence], true where a token only fills its row and has the label "
                "Batch::kIgnore");
  };
  if (padding.scalar_type() != at::kBool || !batch.tokens.defined() ||
      padding.sizes() != batch.tokens.sizes())
    refuse("is not a tensor of bool in the sizes of the tokens");
  if (batch.labels.defined() && padding.logical_and(batch.labels.ne(Batch::kIgnore)).any().item<bool>())
    refuse("has a token with a label");
}

at::Tensor documents_of_rows(const at::Tensor& documents, int64_t first, int64_t count, int64_t sequence) {
  const at::Tensor host = documents.to(at::kCPU).contiguous();
  const std::span<const int32_t> offsets = offsets_of(host);
  const auto begin = std::lower_bound(offsets.begin(), offsets.end(), first * sequence);
  const auto end = std::upper_bound(begin, offsets.end(), (first + count) * sequence);
  const at::Tensor out = at::empty({end - begin}, at::kInt);
  std::transform(begin, end, out.mutable_data_ptr<int32_t>(),
                 [&](int32_t offset) { return offset - static_cast<int32_t>(first * sequence); });
  return out;
}

}  // namespace heddle

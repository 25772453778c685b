// Ranges of heads, and the chains. Without a link a batch has whole rows.
#include "heddle/nn/sequence_core.h"

#include <utility>

#include "heddle/base/error.h"

namespace heddle {
namespace model {

at::Tensor rows_of_heads(const at::Tensor& parameter, const HeadRange& whole, const HeadRange& range) {
  if (range == whole) return parameter;
  const int64_t rows = parameter.size(0) / (whole.groups * whole.heads);
  const int64_t first = range.first_group * whole.heads + range.first_head;
  return parameter.narrow(0, first * rows, range.groups * range.heads * rows);
}

at::Tensor rows_of_groups(const at::Tensor& parameter, const HeadRange& whole, const HeadRange& range) {
  if (range.groups == whole.groups) return parameter;
  const int64_t rows = parameter.size(0) / whole.groups;
  return parameter.narrow(0, range.first_group * rows, range.groups * rows);
}

}  // namespace model

SequenceCore::~SequenceCore() = default;

ModuleTraits SequenceCore::traits() const {
  return {.tokens = TokenUse::mixes};
}

at::Tensor SequenceCore::compute(model::SequenceInputs in, const model::HeadRange& heads, const Batch& batch,
                                 const Own& own) {
  if (instead.empty()) return output(own(in, heads), batch);
  const auto last = [&own](const model::SequenceInputs& inputs, const model::HeadRange& range, const Batch&) {
    return own(inputs, range);
  };
  return output(instead.call(last, std::move(in), heads, batch), batch);
}

at::Tensor SequenceCore::forward(at::Tensor, const Batch&) {
  throw Error(ErrorCode::internal, "model", "a sequence core takes several tensors",
              "call compute(), not call()");
}

RowGather::~RowGather() = default;

ModuleTraits RowGather::traits() const {
  return {.tokens = TokenUse::mixes};
}

model::GatheredRows RowGather::gather(at::Tensor own, const Batch& batch) {
  const auto alone = [](at::Tensor rows, const Batch&) { return model::GatheredRows{std::move(rows), {}}; };
  return instead.call(alone, std::move(own), batch);
}

at::Tensor RowGather::forward(at::Tensor, const Batch&) {
  throw Error(ErrorCode::internal, "model", "gathered rows are two tensors", "call gather(), not call()");
}

}  // namespace heddle

// Ranges of heads, and the chain around a mixer's own computation.
#include "heddle/nn/sequence_core.h"

#include "heddle/base/error.h"

namespace heddle {
namespace model {

at::Tensor rows_of_heads(const at::Tensor& parameter, const HeadRange& all, const HeadRange& range) {
  if (range == all) return parameter;
  const int64_t rows = parameter.size(0) / (all.groups * all.heads);
  const int64_t first = range.first_group * all.heads + range.first_head;
  return parameter.narrow(0, first * rows, range.groups * range.heads * rows);
}

at::Tensor rows_of_groups(const at::Tensor& parameter, const HeadRange& all, const HeadRange& range) {
  if (range.groups == all.groups) return parameter;
  const int64_t rows = parameter.size(0) / all.groups;
  return parameter.narrow(0, range.first_group * rows, range.groups * rows);
}

}  // namespace model

SequenceCore::~SequenceCore() = default;

// Between the projections of a mixer there are whole rows under sequence parallelism.
ModuleTraits SequenceCore::traits() const {
  return {.tokens = TokenUse::mixes, .token_axes = {"tp"}};
}

at::Tensor SequenceCore::compute(model::SequenceInputs in, const model::HeadRange& all, const Batch& batch,
                                 const Own& own) {
  if (instead.empty()) return output(own(in, all), batch);
  const auto last = [&own](const model::SequenceInputs& inputs, const model::HeadRange& range, const Batch&) {
    return own(inputs, range);
  };
  return output(instead.call(last, std::move(in), all, batch), batch);
}

at::Tensor SequenceCore::forward(at::Tensor, const Batch&) {
  throw Error(ErrorCode::internal, "model", "a sequence core takes several tensors",
              "call compute(), not call()");
}

}  // namespace heddle

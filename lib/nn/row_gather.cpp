// Without a link the batch has whole rows.
#include "heddle/nn/row_gather.h"

#include <utility>

#include "heddle/base/error.h"

namespace heddle {

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

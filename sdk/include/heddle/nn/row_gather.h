// What a layer needs of all tokens of its rows and what gets no gradient, such as the keys of an indexer.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "heddle/base/export.h"
#include "heddle/model/chain.h"
#include "heddle/model/module.h"

namespace heddle {

namespace model {

struct GatheredRows {
  at::Tensor values;  // [tokens of whole rows, any]: whole_sequence_of(batch) of each row
  // int64 [tokens], on the host: the places in `values` of the tokens that the batch has. Undefined: they are
  // all of them, in their order.
  at::Tensor places;
};

}  // namespace model

// The seam of context parallelism for such tensors: a link in place gathers those of all ranks. A child of
// the layer, which has a rule for the axis cp then.
class HEDDLE_API RowGather : public Module {
 public:
  using Instead = Chain<model::GatheredRows(at::Tensor own, const Batch& batch)>;
  ~RowGather() override;
  std::string_view kind() const override { return "row_gather"; }
  ModuleTraits traits() const override;

  // own [tokens, any]. Nothing is recorded by autograd.
  model::GatheredRows gather(at::Tensor own, const Batch& batch);

  Instead instead{"RowGather::instead"};

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // refused: gather() returns two tensors
};

}  // namespace heddle

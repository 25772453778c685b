// A part of a model that is gathered, run and released together.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/model/batch.h"
#include "heddle/model/slot.h"

namespace heddle {

using Tensors = std::vector<at::Tensor>;  // what flows from unit to unit, with gradients

class Module;

// How the axis tp splits a model's layers by default: patterns of module paths, whose segments may contain
// `*` and `?`, each with a style ("colwise", "rowwise_rep", ...; defined by the parallelizer of the axis). A
// module that no pattern matches stays whole.
using TensorPlan = std::vector<std::pair<std::string, std::string>>;

class HEDDLE_API Unit {
 public:
  virtual ~Unit();
  virtual std::string_view name() const = 0;  // "layers.3"
  virtual std::vector<ParameterSlot> parameters() = 0;
  virtual Module* module() = 0;  // null: a foreign model; only strategies and the pipeline can act on it
  // The first unit gets no tensors and reads the batch; the last one returns {sum of token losses} (fp32, one
  // element) when the batch has labels, else {logits}.
  virtual Tensors forward(Tensors inputs, const Batch& batch) = 0;
  // Of the whole model, the same for each of its units; null: the model has none.
  virtual const TensorPlan* tensor_plan() const { return nullptr; }
};

using Units = std::vector<std::unique_ptr<Unit>>;  // in execution order

// Tensors of a unit that its forward changes and no gradient reaches.

// What a unit is besides, if it has such tensors: running statistics of a foreign model's norms. Heddle's own
// layers have none. Found by dynamic_cast.
class HEDDLE_API UnitBuffers {
 public:
  virtual ~UnitBuffers();
  // Handles of the unit's own tensors, always the same ones in the same order.
  virtual std::vector<at::Tensor> buffers() = 0;
};

}  // namespace heddle

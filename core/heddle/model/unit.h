// One stretch of a model that is gathered, run and released together.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/model/batch.h"
#include "heddle/model/slot.h"

namespace heddle {

using Tensors = std::vector<at::Tensor>;  // what flows from unit to unit, with gradients

class Module;

class HEDDLE_API Unit {
 public:
  virtual ~Unit();
  virtual std::string_view name() const = 0;  // "model.layers.3"
  virtual std::vector<ParameterSlot> parameters() = 0;
  virtual Module* module() = 0;  // null: a foreign model; only strategies and the pipeline can act on it
  // The first unit gets no tensors and reads the batch; the last one returns {sum of token losses} (fp32, one
  // element) when the batch has labels, else {logits}.
  virtual Tensors forward(Tensors inputs, const Batch& batch) = 0;
};

using Units = std::vector<std::unique_ptr<Unit>>;  // in execution order

}  // namespace heddle

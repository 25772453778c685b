// Unit, a part of a model that is gathered, run and released together.
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

using Tensors = std::vector<at::Tensor>;  // passed from unit to unit, with gradients

class Module;

// The default plan for splitting a model's layers along the axis tp. Maps patterns of module paths, in which
// `*` and `?` match within a segment, to styles ("colwise", "rowwise_rep", ...) of the axis's parallelizer. A
// module without a matching pattern stays whole.
using TensorPlan = std::vector<std::pair<std::string, std::string>>;

// One or a few layers of a model.
class HEDDLE_API Unit {
 public:
  virtual ~Unit();
  virtual std::string_view name() const = 0;  // "layers.3"
  virtual std::vector<ParameterSlot> parameters() = 0;
  // Null for a foreign model, on which only strategies and the pipeline can act.
  virtual Module* module() = 0;
  // Runs the unit. The first unit gets no tensors and reads the batch. The last unit returns {sum of token
  // losses} (fp32, one element) if the batch has labels, else {logits}.
  virtual Tensors forward(Tensors inputs, const Batch& batch) = 0;
  // Returns the plan of the whole model, equal for all units, or null.
  virtual const TensorPlan* tensor_plan() const { return nullptr; }
};

using Units = std::vector<std::unique_ptr<Unit>>;  // in execution order

// Tensors of a unit that its forward modifies and that have no gradient.

// An additional base of a unit with such tensors, for example the running statistics of a foreign model's
// norms. Heddle's layers have none. Found by dynamic_cast.
class HEDDLE_API UnitBuffers {
 public:
  virtual ~UnitBuffers();
  // Returns the unit's own tensors (not copies), the same ones in the same order each time.
  virtual std::vector<at::Tensor> buffers() = 0;
};

}  // namespace heddle

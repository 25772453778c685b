// The interface of a parallelizer: splits units along one axis (tensor, context, expert).
#pragma once

#include <vector>

#include "heddle/base/export.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/model/unit.h"
#include "heddle/parallel/needs.h"
#include "heddle/parallel/shard.h"

namespace heddle {

class HEDDLE_API IParallelizer {
 public:
  virtual ~IParallelizer();
  virtual Needs needs() const = 0;
  // Throws Error for a model that cannot be split so, naming the model's numbers: before there is a mesh, on
  // the whole model. By default nothing is checked.
  virtual void check(Units& units, const Sizes& sizes);
  // Splits slots, sets seams; says what it split. Runs before the strategy, on parameters that may be on
  // meta.
  virtual std::vector<Placed> apply(Units& units, const DeviceMesh& mesh) = 0;
};

}  // namespace heddle

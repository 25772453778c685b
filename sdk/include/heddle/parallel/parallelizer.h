// The interface of a parallelizer: splits units along one axis (tensor, context, expert), and may change
// batches.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/model/side_outputs.h"
#include "heddle/model/unit.h"
#include "heddle/parallel/needs.h"
#include "heddle/parallel/shard.h"

namespace heddle {

// Lives as long as the run's stages.
class HEDDLE_API IParallelizer {
 public:
  virtual ~IParallelizer();
  virtual Needs needs() const = 0;
  // For messages: core gives that of the plugin.
  virtual std::string name() const;
  // Throws Error for a model that cannot be split so, naming the model's numbers: before there is a mesh, on
  // the whole model. By default nothing is checked.
  virtual void check(Units& units, const Sizes& sizes);
  // Splits slots, sets seams; says what it split. Runs before the strategy, on parameters that may be on
  // meta.
  virtual std::vector<Placed> apply(Units& units, const DeviceMesh& mesh) = 0;

  // The place of transform() among those of the run's parallelizers, the lowest first: about 0 for what
  // tokens and labels are, 100 for positions and documents, 200 for a cut along the sequence. Two of one
  // place are refused by name. Empty (the default): batches stay as they are.
  virtual std::optional<int> transform_order() const;
  // Changes a batch of training or evaluation, before it is cut into microbatches and copied to the device:
  // once a batch, alike on every rank of a pipeline. The number of label tokens that the loss is divided by
  // was counted before. Its rows stay; tensors are replaced, not changed in place. Metrics may be added.
  virtual void transform(Batch& batch, const DeviceMesh& mesh);

  // Auxiliary losses and metrics that its links, seams and transform() add; the same on every rank, and from
  // the beginning.
  virtual std::vector<SideOutput*> side_outputs();
  // After the optimizer's update of every step, on every rank: for buffers of its own.
  virtual void after_update(const Updated& updated, const DeviceMesh& mesh);
};

}  // namespace heddle

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

// Lives as long as the run's stages. One whose needs name no axis acts in runs whose `distributed:` has a
// block of its name, which holds its fields: for plugins that only change batches.
class HEDDLE_API IParallelizer {
 public:
  virtual ~IParallelizer();
  virtual Needs needs() const = 0;
  // For messages; core wraps it with the plugin's name.
  virtual std::string name() const;
  // Throws Error for a model that cannot be split, with the model's sizes; called before there is a mesh, on
  // the whole model. The default checks nothing.
  virtual void check(Units& units, const Sizes& sizes);
  // Throws Error for a device that it does not act on; called before there is a mesh. on_cpu: parameters live
  // on the CPU. The default takes any.
  virtual void check_device(bool on_cpu) const;
  // Splits slots, sets seams; returns what it split. Runs before the strategy, on parameters that may be on
  // meta.
  virtual std::vector<Placed> apply(Units& units, const DeviceMesh& mesh) = 0;

  // The order of transform() among those of the run's parallelizers, the lowest first: about 0 for changes of
  // tokens and labels, 100 for positions and documents, 200 for a cut along the sequence. Two of one order
  // are refused by name. Empty (the default): no transform.
  virtual std::optional<int> transform_order() const;
  // Changes a batch of training or evaluation before it is cut into microbatches and copied to the device:
  // once per batch, equally on every rank of a pipeline. The label tokens that the loss is divided by are
  // counted before. The number of rows stays; tensors are replaced, not changed in place; tokens stay in the
  // vocabulary. Metrics may be added.
  virtual void transform(Batch& batch, const DeviceMesh& mesh);

  // Auxiliary losses and metrics that its links, seams and transform() add; the same on every rank, known
  // before apply().
  virtual std::vector<SideOutput*> side_outputs();
  // After the optimizer's update of every step, on every rank: for buffers of its own.
  virtual void after_update(const Updated& updated, const DeviceMesh& mesh);
};

}  // namespace heddle

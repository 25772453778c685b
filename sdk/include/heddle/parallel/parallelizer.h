// IParallelizer, the interface of a parallelizer: splits units along one axis (tensor, context, expert), and
// may transform batches.
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

// A parallelizer, which lives as long as the stages of the run. A parallelizer whose needs name no axis is
// for plugins that only transform batches. It acts if `distributed:` has a section of its name, which
// contains its fields.
class HEDDLE_API IParallelizer {
 public:
  virtual ~IParallelizer();
  virtual Needs needs() const = 0;
  // Returns the name for messages. Core wraps the parallelizer with the plugin's name.
  virtual std::string name() const;
  // Throws Error for a model that it cannot split with these sizes. Called with the whole model, before there
  // is a mesh. The default does nothing.
  virtual void check(Units& units, const Sizes& sizes);
  // Throws Error for a device that it does not support. Called before there is a mesh. on_cpu: whether
  // parameters are on the CPU. The default accepts any device.
  virtual void check_device(bool on_cpu) const;
  // Splits slots and sets seams, and returns the split parameters. Called before the strategy; parameters may
  // be on meta.
  virtual std::vector<Placed> apply(Units& units, const DeviceMesh& mesh) = 0;

  // Returns the order of transform() among the parallelizers of the run, lowest first: about 0 to change
  // tokens and labels, 100 to change positions and documents, 200 to split the sequence. Equal orders are
  // refused. Empty (the default) means that there is no transform.
  virtual std::optional<int> transform_order() const;
  // Transforms a batch of training or evaluation before it is split into microbatches and copied to the
  // device. Called once per batch, with the same result on every rank of a pipeline. Label tokens for the
  // loss are counted before. The number of rows must not change, tensors must be replaced instead of modified
  // in place, and tokens must stay in the vocabulary. Metrics may be added.
  virtual void transform(Batch& batch, const DeviceMesh& mesh);

  // Returns the auxiliary losses and metrics that its links, seams and transform() add. Equal on every rank,
  // and known before apply().
  virtual std::vector<SideOutput*> side_outputs();
  // Called after the optimizer update of every step, on every rank, to update buffers.
  virtual void after_update(const Updated& updated, const DeviceMesh& mesh);
};

}  // namespace heddle

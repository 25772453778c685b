// A small model on one rank, whose units are run one by one.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "heddle/mesh/device_mesh.h"
#include "heddle/model/family.h"
#include "heddle/parallel/stages.h"
#include "lib/testing/small_model.h"

namespace heddle::kits {

// Values that make every parameter count: larger ones than those that training begins with, biases that are
// not zero, weights of norms that differ. A function of the name and the place. False for slots that do not
// train: these keep what Init says.
bool telling_values(const Shard& shard);

// Rows for a model of this vocabulary and these positions.
Rows rows_for(const ModelSpec& spec);

// A model and where it computes: on the device of the rendezvous.
struct ModelSite {
  const ModelSpec& spec;
  Rendezvous& rendezvous;  // of one rank
  // The batch's tensors there, as a run has them.
  Batch here(const Batch& batch) const;
};

class BuiltModel {
 public:
  // In float64 on the CPU, in float32 on a device, whose kernels have no more.
  explicit BuiltModel(const ModelSite& site);
  BuiltModel(const ModelSite& site, at::ScalarType dtype);

  // The last unit's output.
  at::Tensor forward(const Batch& batch);
  // The sum of the token losses, without gradients.
  double main_loss(const Batch& batch);
  // The gradients of that sum, by the parameters' names; undefined: none.
  std::map<std::string, at::Tensor> gradients(const Batch& batch);
  // From now on auxiliary losses are part of the loss, each divided by 1.
  void count_auxiliary_losses() { auxiliary_ = 1; }
  // The sums of metrics and auxiliary losses of the last batch.
  at::Tensor side_sums() const { return sides_ ? sides_->sums() : at::Tensor(); }

  // Runs the units, each on inputs that are leaves.
  using Visitor = std::function<void(Unit& unit, const Tensors& inputs, const Tensors& outputs)>;
  void each_unit(const Batch& batch, const Visitor& visitor);

  std::vector<Unit*>& units() { return units_; }
  std::vector<Shard*> shards() { return stages_.shards(); }

 private:
  Batch collected(Batch batch);

  std::vector<Unit*> units_;  // those of the stage
  DeviceMesh mesh_;
  Stages stages_;
  std::unique_ptr<SideOutputs> sides_;
  double auxiliary_ = 0;  // the share of auxiliary losses in the loss
};

}  // namespace heddle::kits

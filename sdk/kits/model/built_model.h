// A small model on one rank, whose units run one by one.
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

// Writes values with which every parameter affects the result: larger than usual initial values, biases that
// are not zero, and different norm weights. They depend only on the name and the position. Returns false for
// slots that do not train, which keep the values of their Init.
bool telling_values(const Shard& shard);

// Returns the shape of rows for a model with this vocabulary and these positions.
Rows rows_for(const ModelSpec& spec);

// A model, and the rendezvous of the rank that computes it on its device.
struct ModelSite {
  const ModelSpec& spec;
  Rendezvous& rendezvous;  // of one rank
  // Moves the batch to the device as a run does.
  Batch here(const Batch& batch) const;
};

class BuiltModel {
 public:
  // Creates the model in float64 on the CPU, or in float32 on a device, whose kernels do not support float64.
  explicit BuiltModel(const ModelSite& site);
  BuiltModel(const ModelSite& site, at::ScalarType dtype);

  // Returns the output of the last unit.
  at::Tensor forward(const Batch& batch);
  // Returns the sum of the token losses, without gradients.
  double main_loss(const Batch& batch);
  // Returns the gradients of that sum by parameter name; undefined if there is none.
  std::map<std::string, at::Tensor> gradients(const Batch& batch);
  // Adds auxiliary losses, each with divisor 1, to the loss from now on.
  void count_auxiliary_losses() { auxiliary_ = 1; }
  // Returns the sums of metrics and auxiliary losses of the last batch.
  at::Tensor side_sums() const { return sides_ ? sides_->sums() : at::Tensor(); }

  // Runs the units, each with inputs that are leaves.
  using Visitor = std::function<void(Unit& unit, const Tensors& inputs, const Tensors& outputs)>;
  void each_unit(const Batch& batch, const Visitor& visitor);

  std::vector<Unit*>& units() { return units_; }
  std::vector<Shard*> shards() { return stages_.shards(); }

 private:
  Batch collected(Batch batch);

  std::vector<Unit*> units_;  // owned by the stage
  DeviceMesh mesh_;
  Stages stages_;
  std::unique_ptr<SideOutputs> sides_;
  double auxiliary_ = 0;  // factor of auxiliary losses in the loss
};

}  // namespace heddle::kits

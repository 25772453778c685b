// Parameters and optimizer of a single rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "heddle/mesh/call.h"
#include "lib/train/optimizer/updater.h"

namespace heddle::tests {

inline Shard parameter(const std::string& name, at::Tensor values) {
  Shard shard;
  shard.name = name;
  shard.tensor = values.requires_grad_();
  shard.shape = values.sizes().vec();
  return shard;
}

inline std::vector<Shard*> all(std::vector<Shard>& shards) {
  std::vector<Shard*> pointers;
  for (Shard& shard : shards) pointers.push_back(&shard);
  return pointers;
}

// AdamW in a world of one rank.
struct Alone {
  AloneRendezvous rendezvous;
  DeviceMesh mesh = mesh::build({}, rendezvous, "");
  std::unique_ptr<IOptimizer> optimizer;
  train::Updater updater;
  Alone(const std::vector<Shard*>& shards, const StepConfig& config)
      : optimizer(train::make_adamw(config.optimizer)), updater(shards, mesh, config, *optimizer) {}
  void update(double lr, double decay, const at::Tensor& divisor, const at::Tensor& skip = {}) {
    updater.update({lr, decay, divisor, skip});
  }
  std::vector<OptimizerState> state() const { return updater.state(); }
};

}  // namespace heddle::tests

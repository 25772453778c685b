// Fully sharded data parallelism with per-parameter sharding, modeled on PyTorch's FSDP2 (fully_shard).
#pragma once

#include <memory>
#include <span>

#include "config.h"
#include "heddle/sdk.h"

namespace heddle::fsdp2 {

// Parameters, gradients and optimizer state are split by rows over the ranks of dp_shard, or of dp_shard and
// cp with context parallelism. The ranks of dp_replicate hold copies of the shards (hybrid sharding).
class Fsdp2 : public IStrategy {
 public:
  explicit Fsdp2(Config config) : config_(std::move(config)) {}
  Needs needs() const override;
  // Throws Error{input} for a parameter that cannot be split or tied, and Error{mesh} for axes that fsdp2
  // does not support.
  std::unique_ptr<ParallelStage> parallelize(Units units, const DeviceMesh& mesh,
                                             std::span<const Placed> placed) override;

 private:
  Config config_;
};

}  // namespace heddle::fsdp2

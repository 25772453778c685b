// Megatron's data parallelism with two sets of fields, after Megatron-FSDP and Megatron-Core's
// DistributedDataParallel.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "config.h"
#include "heddle/sdk.h"
#include "megatron_config.h"

namespace heddle::megatron_fsdp {

// NeMo AutoModel's fields: zero_dp_strategy selects what is split over the ranks of dp (with context
// parallelism: dp and cp together).
class MegatronFsdp : public IStrategy {
 public:
  explicit MegatronFsdp(Config config) : config_(std::move(config)) {}
  Needs needs() const override;
  // Throws Error{config} for unit classes that the model does not have, Error{input} for a foreign parameter
  // that cannot be tied.
  std::unique_ptr<ParallelStage> parallelize(Units units, const DeviceMesh& mesh,
                                             std::span<const Placed> placed) override;

 private:
  Config config_;
};

// Megatron-Core's fields (DistributedDataParallelConfig). dp_shard (with cp) is one instance of the
// distributed optimizer, dp_replicate counts the instances.
class Megatron : public IStrategy {
 public:
  explicit Megatron(MegatronConfig config) : config_(std::move(config)) {}
  Needs needs() const override;
  // Throws Error{mesh} for axes that it would not use, and for instances that are not those of the mesh.
  std::unique_ptr<ParallelStage> parallelize(Units units, const DeviceMesh& mesh,
                                             std::span<const Placed> placed) override;

 private:
  MegatronConfig config_;
};

}  // namespace heddle::megatron_fsdp

// Megatron's data parallelism with two sets of fields, modeled on Megatron-FSDP and on Megatron-Core's
// DistributedDataParallel.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "config.h"
#include "heddle/sdk.h"
#include "megatron_config.h"

namespace heddle::megatron_fsdp {

// Strategy with NeMo AutoModel's fields. zero_dp_strategy selects the state that the ranks of dp split (dp
// and cp together with context parallelism).
class MegatronFsdp : public IStrategy {
 public:
  explicit MegatronFsdp(Config config) : config_(std::move(config)) {}
  Needs needs() const override;
  // Throws Error{config} for unit classes that the model does not have, and Error{input} for a parameter of a
  // foreign unit that cannot be tied.
  std::unique_ptr<ParallelStage> parallelize(Units units, const DeviceMesh& mesh,
                                             std::span<const Placed> placed) override;

 private:
  Config config_;
};

// Strategy with Megatron-Core's fields (DistributedDataParallelConfig). dp_shard (with cp) is one instance of
// the distributed optimizer, and dp_replicate counts the instances.
class Megatron : public IStrategy {
 public:
  explicit Megatron(MegatronConfig config) : config_(std::move(config)) {}
  Needs needs() const override;
  // Throws Error{mesh} for axes that it does not support, and if the number of instances is not that of the
  // mesh.
  std::unique_ptr<ParallelStage> parallelize(Units units, const DeviceMesh& mesh,
                                             std::span<const Placed> placed) override;

 private:
  MegatronConfig config_;
};

}  // namespace heddle::megatron_fsdp

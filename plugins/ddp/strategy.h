// Data parallelism with whole parameters on every rank, modeled on PyTorch's DistributedDataParallel (Li et
// al. 2020).
#pragma once

#include <memory>
#include <span>

#include "config.h"
#include "heddle/sdk.h"

namespace heddle::ddp {

// Every data-parallel rank holds the whole model in its storage dtype, except that it holds its part of a
// parameter that a parallelizer split. Gradients are summed in buckets during the backward, each over its
// parameter's reduction.
class Ddp : public IStrategy {
 public:
  explicit Ddp(Config config) : config_(std::move(config)) {}
  Needs needs() const override;
  // Throws Error{input} for a parameter of a foreign unit that cannot be tied.
  std::unique_ptr<ParallelStage> parallelize(Units units, const DeviceMesh& mesh,
                                             std::span<const Placed> placed) override;

 private:
  Config config_;
};

}  // namespace heddle::ddp

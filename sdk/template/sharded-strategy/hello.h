// Data parallelism with a sharded optimizer: every rank computes with the whole model, and updates its own
// part.
#pragma once

#include "heddle/sdk.h"

namespace hello {

struct Config {
  int64_t bucket_mb = 25;
};

// Words only: a strategy is made before there is a mesh, and used once it stands.
class Hello : public heddle::IStrategy {
 public:
  explicit Hello(Config config) : config_(config) {}
  heddle::Needs needs() const override;
  std::unique_ptr<heddle::ParallelStage> parallelize(heddle::Units units, const heddle::DeviceMesh& mesh,
                                                     std::span<const heddle::Placed> placed) override;

 private:
  Config config_;
};

}  // namespace hello

// Fully sharded data parallelism: each rank has a part of every parameter, and gathers a unit while it runs.
#pragma once

#include "heddle/sdk.h"

namespace hello_plugin {

struct Config {
  int64_t prefetch = 1;
};

// Stores only its fields, because a strategy is created before there is a mesh.
class Hello : public heddle::IStrategy {
 public:
  explicit Hello(Config config) : config_(config) {}
  heddle::Needs needs() const override;
  std::unique_ptr<heddle::ParallelStage> parallelize(heddle::Units units, const heddle::DeviceMesh& mesh,
                                                     std::span<const heddle::Placed> placed) override;

 private:
  Config config_;
};

}  // namespace hello_plugin

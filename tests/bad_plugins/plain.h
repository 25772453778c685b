// A correct strategy with one field. The bad plugins register this strategy incorrectly.
#pragma once

#include "heddle/sdk.h"

namespace plain {

struct Config {
  int64_t prefetch = 2;
};

inline heddle::ConfigSchema<Config> schema() {
  return heddle::ConfigSchema<Config>().field("prefetch", &Config::prefetch, "Units gathered ahead of use.",
                                              heddle::Range<int64_t>{0, 8});
}

class Strategy : public heddle::IStrategy {
 public:
  explicit Strategy(Config) {}
  heddle::Needs needs() const override {
    heddle::Needs needs;
    needs.axes = {"dp"};
    needs.refuses = {{"tp", "plain does not support tensor parallelism"}};
    return needs;
  }
  std::unique_ptr<heddle::ParallelStage> parallelize(heddle::Units, const heddle::DeviceMesh&,
                                                     std::span<const heddle::Placed>) override {
    throw heddle::Error(heddle::ErrorCode::not_built, "plain", "this strategy is for tests of plugins");
  }
};

}  // namespace plain

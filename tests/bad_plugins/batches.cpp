// Good: a parallelizer without an axis that only transforms batches.
#include <ATen/TensorOperators.h>

#include "heddle/sdk.h"

namespace {

struct Config {
  int64_t shift = 1;
};

class Shifter : public heddle::IParallelizer {
 public:
  explicit Shifter(Config config) : config_(config) {}
  heddle::Needs needs() const override { return {}; }
  std::vector<heddle::Placed> apply(heddle::Units&, const heddle::DeviceMesh&) override { return {}; }
  std::optional<int> transform_order() const override { return 0; }
  void transform(heddle::Batch& batch, const heddle::DeviceMesh&) override {
    batch.tokens = (batch.tokens + config_.shift).remainder(11);
  }

 private:
  Config config_;
};

}  // namespace

HEDDLE_PLUGIN("batches", "0.1.0", "parallelizer shifter moves") {
  plugin.parallelizer<Shifter>(
      "shifter", heddle::ConfigSchema<Config>().field("shift", &Config::shift, "Added to each token.",
                                                      heddle::Range<int64_t>{0, 10}));
}

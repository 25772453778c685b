// Bad: a mesh view over pipeline ranks, which hold different layers.
#include "heddle/sdk.h"

namespace {

struct NoFields {};

class Folds : public heddle::IParallelizer {
 public:
  explicit Folds(NoFields) {}
  heddle::Needs needs() const override {
    heddle::Needs needs;
    needs.axes = {"tp"};
    needs.new_views = {{"acme", {"pp", "dp"}, "acme_shard"}};
    return needs;
  }
  std::vector<heddle::Placed> apply(heddle::Units&, const heddle::DeviceMesh&) override { return {}; }
};

}  // namespace

HEDDLE_PLUGIN("pp_view", "0.1.0", "parallelizer folds") {
  plugin.parallelizer<Folds>("folds", heddle::ConfigSchema<NoFields>());
}

// Bad beside another parallelizer of tp: a second parallelizer for the axis tp.
#include "heddle/sdk.h"

namespace {

struct NoFields {};

class Second : public heddle::IParallelizer {
 public:
  explicit Second(NoFields) {}
  heddle::Needs needs() const override {
    heddle::Needs needs;
    needs.axes = {"tp"};
    return needs;
  }
  std::vector<heddle::Placed> apply(heddle::Units&, const heddle::DeviceMesh&) override { return {}; }
};

}  // namespace

HEDDLE_PLUGIN("splits_tp", "0.1.0", "parallelizer second", "plan seconds") {
  plugin.parallelizer<Second>("second", heddle::ConfigSchema<NoFields>());
  plugin.plan("seconds", {{"a.*.b", "colwise"}});
}

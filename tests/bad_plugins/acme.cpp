// Good: two parallelizers with axes of their own, visible in one mesh view. The variant CYCLE declares a
// cyclic order, the variant RIVAL declares another axis of the same name.
#include "heddle/sdk.h"

namespace {

heddle::AxisInfo axis(const char* name) {
  heddle::AxisInfo out;
  out.name = name;
  out.key = out.name + "_size";
  out.parallelism = out.name + " parallelism";
  out.view = "acme";
  return out;
}

struct NoFields {};

// Declares the axis `acme` and runs after `brisk`.
class Acme : public heddle::IParallelizer {
 public:
  explicit Acme(NoFields) {}
  heddle::Needs needs() const override {
    heddle::Needs needs;
    needs.axes = {"acme"};
    needs.new_axes = {axis("acme"), axis("brisk")};
#ifdef RIVAL
    needs.new_views = {{ "acme", {"cp", "tp"}, "acme_shard" }};
#else
    needs.new_views = {{"acme", {"dp", "cp"}, "acme_shard"}};
#endif
    needs.after = {"brisk"};
    return needs;
  }
  std::vector<heddle::Placed> apply(heddle::Units&, const heddle::DeviceMesh&) override {
    return {};
  }
};

class Brisk : public heddle::IParallelizer {
 public:
  explicit Brisk(NoFields) {}
  heddle::Needs needs() const override {
    heddle::Needs needs = Acme(NoFields()).needs();
    needs.axes = {"brisk"};
    needs.after = {};
#ifdef CYCLE
    needs.after = {"acme"};
#endif
    return needs;
  }
  std::vector<heddle::Placed> apply(heddle::Units&, const heddle::DeviceMesh&) override {
    return {};
  }
};

}  // namespace

#ifdef RIVAL
HEDDLE_PLUGIN("rival", "0.1.0", "parallelizer rival") {
  plugin.parallelizer<Acme>("rival", heddle::ConfigSchema<NoFields>());
}
#else
HEDDLE_PLUGIN("acme", "0.1.0", "parallelizer acme", "parallelizer brisk") {
  plugin.parallelizer<Acme>("acme", heddle::ConfigSchema<NoFields>());
  plugin.parallelizer<Brisk>("brisk", heddle::ConfigSchema<NoFields>());
}
#endif

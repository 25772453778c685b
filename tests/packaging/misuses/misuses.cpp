// Parallelizers with an axis and a view of their own name. Each breaks one rule of a parallelizer.
#include <ATen/ops/ones.h>

#include <string>

#include "heddle/model/side_outputs.h"
#include "heddle/parallel/parallelizer.h"
#include "heddle/sdk.h"

namespace misuses {

struct Config {};

class OfItsOwnAxis : public heddle::IParallelizer {
 public:
  heddle::Needs needs_of(const std::string& name) const {
    heddle::AxisInfo axis;
    axis.name = name;
    axis.key = name + "_size";
    axis.parallelism = name;
    axis.view = name;
    heddle::Needs needs;
    needs.axes = {name};
    needs.new_axes = {axis};
    needs.new_views = {{name, {"dp", "cp"}, name + "_shard"}};
    return needs;
  }
  std::vector<heddle::Placed> apply(heddle::Units&, const heddle::DeviceMesh&) override { return {}; }
};

heddle::Placed placed(heddle::Units& units, const std::string& axis, int64_t dim) {
  const heddle::ParameterSlot slot = units.front()->parameters().front();
  return {slot.name, axis, dim, 0, slot.tensor->size(dim)};
}

class NoView : public OfItsOwnAxis {
 public:
  explicit NoView(Config) {}
  heddle::Needs needs() const override { return needs_of("no_view"); }
  std::vector<heddle::Placed> apply(heddle::Units& units, const heddle::DeviceMesh&) override {
    return {placed(units, "elsewhere", 0)};
  }
};

class TwoViews : public OfItsOwnAxis {
 public:
  explicit TwoViews(Config) {}
  heddle::Needs needs() const override { return needs_of("two_views"); }
  std::vector<heddle::Placed> apply(heddle::Units& units, const heddle::DeviceMesh&) override {
    return {placed(units, "two_views", 0), placed(units, "dp", 1)};
  }
};

class InPlace : public OfItsOwnAxis {
 public:
  explicit InPlace(Config) {}
  heddle::Needs needs() const override { return needs_of("in_place"); }
  std::optional<int> transform_order() const override { return 0; }
  void transform(heddle::Batch& batch, const heddle::DeviceMesh&) override { batch.labels.fill_(0); }
};

class FewerRows : public OfItsOwnAxis {
 public:
  explicit FewerRows(Config) {}
  heddle::Needs needs() const override { return needs_of("fewer_rows"); }
  std::optional<int> transform_order() const override { return 0; }
  void transform(heddle::Batch& batch, const heddle::DeviceMesh&) override {
    batch.tokens = batch.tokens.narrow(0, 0, 1).clone();
  }
};

class Undeclared : public OfItsOwnAxis {
 public:
  explicit Undeclared(Config) {}
  heddle::Needs needs() const override { return needs_of("undeclared"); }
  std::vector<heddle::SideOutput*> side_outputs() override { return {&one_}; }
  std::optional<int> transform_order() const override { return 0; }
  void transform(heddle::Batch& batch, const heddle::DeviceMesh&) override {
    other_.add(at::ones({1}), batch);
  }

 private:
  heddle::Metric one_{"misuse/one", heddle::Combine::sum}, other_{"misuse/other", heddle::Combine::sum};
};

class Wide : public OfItsOwnAxis {
 public:
  explicit Wide(Config) {}
  heddle::Needs needs() const override { return needs_of("wide"); }
  std::vector<heddle::SideOutput*> side_outputs() override { return {&one_}; }
  std::optional<int> transform_order() const override { return 0; }
  void transform(heddle::Batch& batch, const heddle::DeviceMesh&) override { one_.add(at::ones({2}), batch); }

 private:
  heddle::Metric one_{"misuse/wide", heddle::Combine::sum};
};

}  // namespace misuses

HEDDLE_PLUGIN("misuses", "0.1.0", "parallelizer no_view", "parallelizer two_views", "parallelizer in_place",
              "parallelizer fewer_rows", "parallelizer undeclared", "parallelizer wide") {
  const heddle::ConfigSchema<misuses::Config> schema;
  plugin.parallelizer<misuses::NoView>("no_view", schema);
  plugin.parallelizer<misuses::TwoViews>("two_views", schema);
  plugin.parallelizer<misuses::InPlace>("in_place", schema);
  plugin.parallelizer<misuses::FewerRows>("fewer_rows", schema);
  plugin.parallelizer<misuses::Undeclared>("undeclared", schema);
  plugin.parallelizer<misuses::Wide>("wide", schema);
}

// A transform: a trained gain on the output of each layer, beside frozen weights.
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>

#include <memory>
#include <set>

#include "heddle/plugin/transform.h"
#include "heddle/sdk.h"

namespace hello_plugin {

using heddle::Batch;
using heddle::Module;
using heddle::Role;
using heddle::Units;

struct Config {
  bool train_base = false;
};

heddle::ConfigSchema<Config> schema() {
  return heddle::ConfigSchema<Config>().field("train_base", &Config::train_base,
                                              "Train the weights of the model too.");
}

// x * weight, row by row. The role of a norm: under sequence parallelism, whose ranks hold parts of the rows,
// the gradient of its weight is summed as that of a norm's.
class Gain : public Module {
 public:
  Gain(int64_t width, const at::TensorOptions& options) : weight(at::ones({width}, options)) {
    weight.set_requires_grad(true);
    add_slot("weight", weight, {heddle::Init::Kind::ones});
  }
  std::string_view kind() const override { return "gain"; }
  heddle::ModuleTraits traits() const override {
    return {.tokens = heddle::TokenUse::each_alone, .role = Role::norm};
  }

  at::Tensor weight;

 protected:
  at::Tensor forward(at::Tensor x, const Batch&) override { return x * weight; }
};

// The embedding's weight tells the width of the hidden states, the dtype and the device.
const at::Tensor& embedding_of(const Units& units, const std::string& where) {
  const at::Tensor* found = nullptr;
  for (const auto& unit : units)
    if (unit->module() != nullptr)
      unit->module()->visit("", [&](const std::string&, Module& module) {
        if (module.traits().role == Role::embedding && !module.slots().empty())
          found = module.slots().front().tensor;
      });
  if (found == nullptr)
    throw heddle::Error(heddle::ErrorCode::config, where, "the model has no embedding of heddle's own",
                        "leave hello out");
  return *found;
}

// The names of all parameters.
std::set<std::string> names_of(const Units& units) {
  std::set<std::string> out;
  for (const auto& unit : units)
    for (const heddle::ParameterSlot& slot : unit->parameters()) out.insert(slot.name);
  return out;
}

class Hello : public heddle::ITransform {
 public:
  explicit Hello(Config config) : config_(config) {}

  heddle::Transformed apply(Units& units, const heddle::TransformRun& run) const override {
    heddle::Transformed out;
    if (!config_.train_base) out.frozen = freeze(units);
    const std::set<std::string> before = names_of(units);
    const at::Tensor& table = embedding_of(units, run.where);
    for (size_t i = 1; i + 1 < units.size(); ++i)  // the layers: the first unit embeds, the last is the head
      if (Module* layer = units[i]->module()) add_gain(*layer, table.size(1), table.options());
    for (const std::string& name : names_of(units))
      if (before.count(name) == 0) out.added.push_back(name);
    out.note = std::to_string(out.added.size()) + " layers have a gain";
    return out;
  }

 private:
  // A child of the layer, so that checkpoints and plans see it; the seam that computes with it owns it.
  static void add_gain(Module& layer, int64_t width, const at::TensorOptions& options) {
    auto gain = std::make_shared<Gain>(width, options);
    heddle::transform::add_child(layer, "hello_gain", *gain);
    layer.output.add([gain](at::Tensor x, const Batch& batch) { return gain->call(std::move(x), batch); });
  }

  // Every slot of a tied parameter; its name once.
  static std::vector<std::string> freeze(Units& units) {
    std::set<std::string> names;
    for (const auto& unit : units)
      for (heddle::ParameterSlot& slot : unit->parameters()) {
        if (slot.trainable()) names.insert(slot.name);
        slot.tensor->set_requires_grad(false);
      }
    return {names.begin(), names.end()};
  }

  Config config_;
};

}  // namespace hello_plugin

HEDDLE_PLUGIN("hello", "0.1.0", "transform hello") {
  plugin.transform<hello_plugin::Hello>("hello", hello_plugin::schema());
}

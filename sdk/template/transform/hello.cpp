// A transform: adds a trained gain to the output of each layer, and freezes the model's weights.
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
                                              "Also train the weights of the model.");
}

// Computes x * weight per row. It has the role of a norm, so that under sequence parallelism, where ranks
// have parts of the rows, the gradient of its weight is summed over ranks.
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

// Returns the embedding's weight, from which the gain takes the hidden size, the dtype and the device.
const at::Tensor& embedding_of(const Units& units, const std::string& where) {
  const at::Tensor* found = nullptr;
  for (const auto& unit : units)
    if (unit->module() != nullptr)
      unit->module()->visit("", [&](const std::string&, Module& module) {
        if (module.traits().role == Role::embedding && !module.slots().empty())
          found = module.slots().front().tensor;
      });
  if (found == nullptr)
    throw heddle::Error(heddle::ErrorCode::config, where, "the model has no module with Role::embedding",
                        "remove the section hello");
  return *found;
}

// Returns the names of all parameters.
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
    for (size_t i = 1; i + 1 < units.size(); ++i)  // the layers are between the embedding and the head
      if (Module* layer = units[i]->module()) add_gain(*layer, table.size(1), table.options());
    for (const std::string& name : names_of(units))
      if (before.count(name) == 0) out.added.push_back(name);
    out.note = std::to_string(out.added.size()) + " layers have a gain";
    return out;
  }

 private:
  // Adds the gain as a child of the layer, so that it is in checkpoints and plans. The seam that computes
  // with it owns it.
  static void add_gain(Module& layer, int64_t width, const at::TensorOptions& options) {
    auto gain = std::make_shared<Gain>(width, options);
    heddle::transform::add_child(layer, "hello_gain", *gain);
    layer.output.add([gain](at::Tensor x, const Batch& batch) { return gain->call(std::move(x), batch); });
  }

  // Freezes every slot, and returns the names of the parameters, each once.
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

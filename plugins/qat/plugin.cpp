// qat: linear layers train with the rounding that quantization will bring.
#include <memory>
#include <string>
#include <utility>

#include "config.h"
#include "heddle/model/module_unit.h"
#include "heddle/plugin/transform.h"
#include "products.h"

namespace heddle::qat {
namespace {

How how_of(const Config& config) {
  const Quantizer& quantizer = *config.chosen();
  How out;
  out.tokens = quantizer.rounds_inputs();
  out.weights = {quantizer.rounds_inputs(), quantizer.groupsize,
                 quantizer.scales_precision.word == "float32" ? at::kFloat : at::kBFloat16};
  out.first_step = config.after.value_or(0);
  return out;
}

// Throws Error{config} for a layer with an adapter.
void refuse_adapters(const std::string& path, const Linear& layer, const std::string& where) {
  if (layer.children().empty()) return;
  throw Error(ErrorCode::config, where,
              "QAT with PEFT is not currently supported: '" + path + "' has an adapter",
              "leave out one of the two sections");
}

// Whether the quantizer changes the layer. Throws Error{config} where torchao fails.
bool takes(const std::string& path, const Linear& layer, const Quantizer& quantizer,
           const std::string& where) {
  const int64_t in = layer.weight.size(1);
  if (!quantizer.rounds_inputs() && layer.bias.defined()) return false;
  if (in % quantizer.groupsize == 0 && in % quantizer.tile() == 0) return true;
  if (quantizer.rounds_inputs() && !quantizer.padding_allowed.value_or(false)) return false;
  const int64_t unit = in % quantizer.groupsize != 0 ? quantizer.groupsize : quantizer.tile();
  throw Error(ErrorCode::config, where,
              "'" + path + "' has " + std::to_string(in) + " inputs, which " + std::to_string(unit) +
                  " does not divide, and padding is not built in torchao either",
              quantizer.rounds_inputs() ? "leave padding_allowed out: the layer then stays as it is"
                                        : "choose another groupsize or inner_k_tiles");
}

struct Found {
  int64_t layers = 0, others = 0;
  bool any_trains = false, experts = false;
};

std::string note_of(const How& how, const Found& found) {
  std::string out = how.tokens ? "fake quantization of inputs in int8 and weights in int4, groups of "
                               : "fake quantization of weights in int4, groups of ";
  out += std::to_string(how.weights.group) + ", in " + std::to_string(found.layers) +
         (found.layers == 1 ? " linear layer" : " linear layers");
  if (how.first_step > 0) out += ", after " + std::to_string(how.first_step) + " steps";
  if (found.others > 0) out += "; " + std::to_string(found.others) + " others stay as they are";
  return found.experts ? out + "; experts stay as they are" : out;
}

class Qat : public ITransform {
 public:
  explicit Qat(Config config) : config_(std::move(config)) {}

  Transformed apply(Units& units, const TransformRun& run) const override {
    if (!config_.on()) return off(run.where);
    const How how = how_of(config_);
    const auto link = Linear::Instead::in_place(
        "qat", [how](std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch) {
          return linears(layers, x, batch, how);
        });
    Found found;
    model::visit(units, [&](const std::string& path, Module& module) {
      const Role role = module.traits().role;
      found.experts = found.experts || role == Role::experts;
      auto* const layer = role == Role::projection ? model::as<Linear>(module) : nullptr;
      if (layer == nullptr) return;
      refuse_adapters(path, *layer, run.where);
      if (!takes(path, *layer, *config_.chosen(), run.where)) return (void)++found.others;
      ++found.layers;
      found.any_trains = found.any_trains || layer->weight.requires_grad();
      layer->instead.add(link);
    });
    check(found, run.where);
    Transformed out;
    out.note = note_of(how, found);
    return out;
  }

 private:
  Transformed off(const std::string& where) const {
    Transformed out;
    if (!config_.enabled && config_.chosen() != nullptr)
      out.warnings.push_back(where +
                             ": enabled is not given, and its default is false: nothing is rounded; write "
                             "enabled: true, or leave the section out");
    return out;
  }

  void check(const Found& found, const std::string& where) const {
    if (found.layers == 0)
      throw Error(
          ErrorCode::config, where,
          "groupsize " + std::to_string(config_.chosen()->groupsize) + " fits no linear layer of the model",
          "choose a groupsize that divides the layers' inputs, or set enabled: false");
    if (!found.any_trains)
      throw Error(ErrorCode::config, where, "no weight of a linear layer trains beside it",
                  "QAT with PEFT is not currently supported: leave out one of the two sections");
  }

  Config config_;
};

}  // namespace
}  // namespace heddle::qat

HEDDLE_PLUGIN("qat", "0.1.0", "transform qat") {
  using namespace heddle::qat;
  auto& offered = plugin.transform<Qat>("qat", schema());
  offered.order = 200;  // after peft: adapters are seen
  offered.refuses = {
      {"tp", "a part of a layer that is split among ranks has no whole row of inputs to find its scale"}};
}

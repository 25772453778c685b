// qat: trains linear layers with the rounding of a later quantization.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "config.h"
#include "fake_quantize.h"
#include "heddle/model/batch.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/linear.h"
#include "heddle/plugin/transform.h"

namespace heddle::qat {
namespace {

struct How {
  bool tokens = true;  // quantize inputs too
  WeightForm weights;
  int64_t first_step = 0;  // layers are not quantized before this step
};

class FakeQuantizedProducts final : public model::LinearProducts {
 public:
  explicit FakeQuantizedProducts(const How& how) : how_(how) {}

  at::Tensor forward(size_t, const at::Tensor& rows, const at::Tensor& weight,
                     const at::Tensor& bias) override {
    return model::matrix_product(input_of(rows).value, rounded_weight(weight, how_.weights).value.t(), bias);
  }
  void end_forward() override { input_ = {}; }

  model::LinearGradients backward(size_t, const at::Tensor& dy, const at::Tensor& rows,
                                  const at::Tensor& weight, model::LinearWanted wanted) override {
    const FakeQuantized of_weight = rounded_weight(weight, how_.weights);
    model::LinearGradients out;
    if (wanted != model::LinearWanted::rows)
      out.weight = through(of_weight, model::matrix_product(dy.t(), input_of(rows).value));
    if (wanted == model::LinearWanted::weight) return out;
    out.rows = model::matrix_product(dy, of_weight.value);
    if (how_.tokens) out.rows = through(input_of(rows), out.rows);
    return out;
  }
  // The gradient of a quantized input depends on the input.
  bool keeps_rows() const override { return how_.tokens; }

 private:
  // Inputs of the products, quantized once for all layers.
  const FakeQuantized& input_of(const at::Tensor& rows) {
    if (!input_.value.defined())
      input_ = how_.tokens ? rounded_tokens(rows) : FakeQuantized{rows, {}, {}, {}};
    return input_;
  }

  How how_;
  FakeQuantized input_;
};

// Returns the outputs of the layers for one input, as one node. It saves the original input and weights, and
// quantizes them again in the backward. Gradients pass as through() defines.
model::FewTensors linears(std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch,
                          const How& how) {
  if (batch.step < how.first_step) return model::products(layers, x, batch);
  return model::products_by(std::make_unique<FakeQuantizedProducts>(how), layers, x);
}

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
              "remove one of the two sections");
}

// Returns whether the quantizer changes the layer. Throws Error{config} if torchao would fail.
bool takes(const std::string& path, const Linear& layer, const Quantizer& quantizer,
           const std::string& where) {
  const int64_t in = layer.weight.size(1);
  if (!quantizer.rounds_inputs() && layer.bias.defined()) return false;
  if (in % quantizer.groupsize == 0 && in % quantizer.tile() == 0) return true;
  if (quantizer.rounds_inputs() && !quantizer.padding_allowed.value_or(false)) return false;
  const int64_t unit = in % quantizer.groupsize != 0 ? quantizer.groupsize : quantizer.tile();
  throw Error(ErrorCode::config, where,
              "'" + path + "' has " + std::to_string(in) + " inputs, which " + std::to_string(unit) +
                  " does not divide, and padding is not implemented in torchao",
              quantizer.rounds_inputs() ? "remove padding_allowed to leave the layer unquantized"
                                        : "set another groupsize or inner_k_tiles");
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
  if (found.others > 0) out += "; " + std::to_string(found.others) + " others are not quantized";
  return found.experts ? out + "; experts are not quantized" : out;
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
                             ": enabled is not set and its default is false, so nothing is quantized; set "
                             "enabled: true, or remove the section");
    return out;
  }

  void check(const Found& found, const std::string& where) const {
    if (found.layers == 0)
      throw Error(ErrorCode::config, where,
                  "groupsize " + std::to_string(config_.chosen()->groupsize) +
                      " does not divide the input size of any linear layer",
                  "set a groupsize that divides the layers' input sizes, or enabled: false");
    if (!found.any_trains)
      throw Error(ErrorCode::config, where, "no weight of a linear layer is trained",
                  "QAT with PEFT is not currently supported: remove one of the two sections");
  }

  Config config_;
};

}  // namespace
}  // namespace heddle::qat

HEDDLE_PLUGIN("qat", "0.1.0", "transform qat") {
  using namespace heddle::qat;
  auto& offered = plugin.transform<Qat>("qat", schema());
  offered.order = 200;  // after peft, so that adapters are found
  offered.refuses = {
      {"tp", "a layer that tensor parallelism splits has no whole rows of inputs to compute scales from"}};
}

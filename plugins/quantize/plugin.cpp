// quantization: stores frozen weights of linear layers in 4 bits.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "heddle/base/text.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/linear.h"
#include "heddle/plugin/transform.h"
#include "heddle/sdk.h"
#include "packed.h"

namespace heddle::quantize {
namespace {

// Layers with packed weights, and their formats.
struct Packed {
  std::unordered_map<const Linear*, Form> forms;
  at::ScalarType compute = at::kBFloat16;  // dtype of x and of the weight in products
};

class PackedProducts final : public model::LinearProducts {
 public:
  PackedProducts(std::span<Linear* const> layers, const Packed& packed) : compute_(packed.compute) {
    for (const Linear* layer : layers) forms_.push_back(packed.forms.at(layer));
  }

  at::Tensor forward(size_t index, const at::Tensor& rows, const at::Tensor& weight,
                     const at::Tensor& bias) override {
    if (!rows_.defined()) rows_ = rows.to(compute_);
    return model::matrix_product(rows_, unpack(weight, forms_[index], compute_).t(),
                                 bias.defined() ? bias.to(compute_) : bias);
  }
  void end_forward() override { rows_.reset(); }

  model::LinearGradients backward(size_t index, const at::Tensor& dy, const at::Tensor&,
                                  const at::Tensor& weight, model::LinearWanted) override {
    return {{}, model::matrix_product(dy.to(compute_), unpack(weight, forms_[index], compute_))};
  }

 private:
  c10::SmallVector<Form, 3> forms_;
  at::ScalarType compute_;
  at::Tensor rows_;  // in the dtype of the products, shared by all layers
};

// Returns the outputs of the layers for one input, in its dtype, as one node. A weight is unpacked for each
// product and freed after it, in the forward and again in the backward. Weights get no gradient, but biases
// may.
model::FewTensors linears(std::span<Linear* const> layers, const at::Tensor& x, const Packed& packed) {
  return model::products_by(std::make_unique<PackedProducts>(layers, packed), layers, x);
}

struct Config {
  bool load_in_4bit = false, load_in_8bit = false, double_quant = true;
  std::string type = "nf4";
  DTypeWord compute{"bfloat16"}, storage{"bfloat16"};
};

ConfigSchema<Config> schema() {
  return ConfigSchema<Config>()
      .field("load_in_4bit", &Config::load_in_4bit,
             "Store weights in 4 bits. false: the section has no effect.")
      .field("load_in_8bit", &Config::load_in_8bit,
             "Store weights in 8 bits with outlier columns (LLM.int8).")
      .later("load_in_8bit", "weights in 8 bits are not built yet")
      .field("bnb_4bit_quant_type", &Config::type, "Code of the 4-bit values.", OneOf{{"nf4", "fp4"}})
      .later("bnb_4bit_quant_type", "only nf4 is built")
      .field("bnb_4bit_use_double_quant", &Config::double_quant,
             "Store the scales of blocks in 8 bits. false: in float32.")
      .field("bnb_4bit_compute_dtype", &Config::compute,
             "Dtype of the products. null: bfloat16. Outputs have the dtype of the inputs.")
      .field("bnb_4bit_quant_storage", &Config::storage,
             "Ignored: packed weights are stored as bytes. In AutoModel it sets their dtype.");
}

at::ScalarType dtype_of(const std::string& word, const std::string& where) {
  if (word.empty() || word == "bfloat16") return at::kBFloat16;
  if (word == "float32") return at::kFloat;
  if (word == "float16") return at::kHalf;
  throw Error(ErrorCode::config, where + ".bnb_4bit_compute_dtype",
              "'" + word + "' is not a dtype of products with weights in 4 bits",
              "use bfloat16, float16 or float32");
}

struct Found {
  std::string path;
  Linear* layer;
};

// Finds the linear layers, except heads and adapters (children of layers). Routers are not linear layers.
struct Search {
  std::vector<Found> layers;
  bool experts = false;
  std::set<const Module*> kept = {};  // children of heads, and adapters

  // A foreign model has none of heddle's layers.
  explicit Search(const Units& units) {
    model::visit(units, [&](const std::string& path, Module& module) {
      const Role role = module.traits().role;
      experts = experts || role == Role::experts;
      auto* const layer = role == Role::projection ? model::as<Linear>(module) : nullptr;
      if (role == Role::head || layer != nullptr)
        for (const auto& [name, child] : module.children()) kept.insert(child);
      if (layer != nullptr && !kept.contains(&module)) layers.push_back({path, layer});
    });
  }
};

void refuse_unfit(const Found& found, const std::string& where) {
  if (found.layer->weight.requires_grad())
    throw Error(ErrorCode::config, where,
                "'" + found.path + ".weight' is trainable, but a weight in 4 bits cannot be trained",
                "add the section peft, which freezes the model and trains adapters");
  for (const auto& [name, child] : found.layer->children())
    if (name == "lora_magnitude_vector")
      throw Error(ErrorCode::config, where,
                  "DoRA is not supported for quantized linear layers (e.g., BitsAndBytes).",
                  "set peft.use_dora: false");
}

// Replaces the weight by bytes of the same name, which are packed when the weight is read.
Form pack_weight(const Found& found, bool double_quant, Transformed& out) {
  Linear& layer = *found.layer;
  const Form form{layer.weight.size(0), layer.weight.size(1), layer.weight.scalar_type(), double_quant};
  for (ParameterSlot& slot : layer.slots()) {
    if (slot.tensor != &layer.weight) continue;
    Derived& derived = out.derived[found.path + ".weight"];
    derived.from = found.path + ".weight";
    derived.shape = {form.out, form.in};
    derived.dtype = form.stored;
    derived.init = slot.init;
    derived.fill = [form](const Shard& box, const at::Tensor& weight) {
      const at::Tensor bytes = pack(weight, form).narrow(0, box.offset[0], box.tensor.size(0));
      box.tensor.detach().copy_(bytes.narrow(1, box.offset[1], box.tensor.size(1)));
    };
    slot.init = {Init::Kind::zeros, 0};
    slot.compute = at::kByte;
  }
  const at::Tensor read = layer.weight.detach();
  layer.weight = at::empty({form.rows(), kRow}, read.options().dtype(at::kByte));
  if (!read.is_meta()) layer.weight.copy_(pack(read.to(at::kCPU), form));
  return form;
}

class Quantize : public ITransform {
 public:
  explicit Quantize(Config config) : config_(std::move(config)) {}

  Transformed apply(Units& units, const TransformRun& run) const override {
    if (!config_.load_in_4bit) return {};
    const Search search(units);
    if (search.layers.empty())
      throw Error(ErrorCode::config, run.where, "the model has no linear layer beside its head",
                  "remove quantization, or set load_in_4bit: false");
    Transformed out;
    auto packed = std::make_shared<Packed>();
    packed->compute = dtype_of(config_.compute.word, run.where);
    int64_t numbers = 0, bytes = 0;
    for (const Found& found : search.layers) {
      refuse_unfit(found, run.where);
      const Form form = pack_weight(found, config_.double_quant, out);
      numbers += form.numbers();
      bytes += form.rows() * kRow;
      packed->forms.emplace(found.layer, form);
    }
    const auto link =
        Linear::Instead::in_place("quantize", [packed = std::shared_ptr<const Packed>(packed)](
                                                  std::span<Linear* const> layers, const at::Tensor& x,
                                                  const Batch&) { return linears(layers, x, *packed); });
    for (const Found& found : search.layers) found.layer->instead.add(link);
    out.note = "weights of " + std::to_string(search.layers.size()) +
               " linear layers in 4 bits (nf4): " + bytes_text(bytes) + ", in float32 " +
               bytes_text(4 * numbers);
    if (search.experts) out.note += "; experts keep their dtype";
    return out;
  }

  // Includes the format and the compute dtype, because adapters are trained relative to them.
  std::string setting() const override {
    if (!config_.load_in_4bit) return "off";
    return config_.type + (config_.double_quant ? ", double quantisation" : "") + "; computed in " +
           config_.compute.word;
  }

 private:
  Config config_;
};

}  // namespace
}  // namespace heddle::quantize

HEDDLE_PLUGIN("quantize", "0.1.0", "transform quantization") {
  using namespace heddle::quantize;
  auto& offered = plugin.transform<Quantize>("quantization", schema());
  offered.order = 200;  // after peft, so that trainable parameters are known
  offered.refuses = {{"tp", "4-bit weights of layers that tensor parallelism splits are not built yet"}};
}

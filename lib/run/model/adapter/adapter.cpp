// Reads adapter_model.safetensors and adds products of A and B to boxes of weights.
#include "lib/run/model/adapter/adapter.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>

#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/experts.h"
#include "lib/checkpoint/huggingface/stored_view.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

const std::string kMagnitude = ".lora_magnitude_vector";

// A parameter that has no parts is stored as the tensor of its name.
StoredParts parts_of(const ModelSpec& model, const std::string& name, std::span<const int64_t> shape) {
  StoredParts parts = model.stored(name, shape);
  return parts.empty() ? stored::whole(name, shape) : parts;
}

// Whether the part is stored as [in, out], as by transformers' Conv1D.
bool lies_transposed(const StoredPart& part) {
  return part.dims == std::vector<int64_t>{1, 0};
}

// An expert weight of the model: its adapter and its sizes.
struct ExpertProduct {
  std::string path;       // of the adapter in the file
  std::string parameter;  // parameter of transformers' module, as named in adapter_config.json
  int64_t experts = 0, out = 0, in = 0;
};

// Returns the path of transformers' module that contains the tensor of all experts.
std::string path_in_files(const ModelSpec& model, const std::string& down, at::IntArrayRef shape) {
  const auto module_of = [](const std::string& name) { return name.substr(0, name.rfind('.')); };
  const StoredParts parts = model.stored(down, shape);
  const bool one = parts.size() == 1 && parts.front().tensor.ends_with(down.substr(down.rfind('.')));
  return module_of(one ? parts.front().tensor : down);
}

// Returns the expert weights by parameter name. If both parameters have adapters, PEFT wraps gate_up_proj
// first.
std::map<std::string, ExpertProduct> products_of(const ModelSpec& model, Units& units,
                                                 const AdapterConfig& config) {
  std::map<std::string, ExpertProduct> out;
  for (const auto& unit : units) {
    if (unit->module() == nullptr) continue;
    const std::vector<ParameterSlot> slots = unit->parameters();
    const auto name_of = [&](const at::Tensor& tensor) {
      for (const ParameterSlot& slot : slots)
        if (slot.tensor == &tensor) return slot.name;
      return std::string();
    };
    unit->module()->visit("", [&](const std::string&, Module& module) {
      const auto* experts = model::as<Experts>(module);
      if (experts == nullptr) return;
      const Experts::Shape& shape = experts->shape();
      const std::string first = name_of(experts->gate_up);
      const std::string path = path_in_files(model, name_of(experts->down), experts->down.sizes());
      const int64_t rows = shape.activation.columns() * shape.width;
      const std::string gate_up = path + ".gate_up_proj", down = path + ".down_proj";
      const bool is_alone = config.parameters.is_given && !config.parameters.matches(down);
      out[first] = {is_alone ? path : path + ".base_layer", gate_up, shape.experts, rows, shape.hidden};
      if (!is_alone) out[name_of(experts->down)] = {path, down, shape.experts, shape.hidden, shape.width};
    });
  }
  return out;
}

// Adapted layers by the path of their weight: "model.layers.0.self_attn.q_proj".
class Weights {
 public:
  explicit Weights(const fs::path& directory)
      : path_(directory / kAdapterWeights), config_(read_adapter_config(directory)), file_(opened(path_)) {
    for (const auto& [key, tensor] : file_.tensors()) add(key, tensor);
    for (const auto& [path, layer] : layers_)
      if (layer.a.empty() || layer.b.empty() || rank_of(layer) <= 0 ||
          file_.tensors().at(layer.b).shape[1] != rank_of(layer))
        refuse(path, "must have lora_A.weight [r, in] and lora_B.weight [out, r]");
    for (const auto& [path, layer] : layers_)
      if (config_.by_rows ? layer.magnitude.empty() || file_.tensors().at(layer.magnitude).shape[0] !=
                                                           file_.tensors().at(layer.b).shape[0]
                          : !layer.magnitude.empty())
        refuse(path, config_.by_rows ? "must have lora_magnitude_vector [out] because use_dora is set"
                                     : "has a lora_magnitude_vector, but use_dora is not set");
  }

  bool has(const std::string& path) const { return layers_.count(path) != 0; }

  // Checks that each layer is a tensor of the model's files with the same shape, or a product of experts.
  void check_fits(const ModelSpec& model) {
    std::set<std::string> left;
    for (const auto& [path, layer] : layers_) left.insert(path);
    Units units = model.make_units(at::TensorOptions(at::kMeta));
    products_ = products_of(model, units, config_);
    std::erase_if(products_, [&](const auto& product) { return !has(product.second.path); });
    for (const auto& [name, product] : products_) {
      left.erase(product.path);
      if (shape_of(product.path, &Layer::b)[0] != product.out ||
          shape_of(product.path, &Layer::a)[1] != product.in ||
          rank_of(layers_.at(product.path)) % product.experts != 0)
        refuse(product.path, "has a different shape than the base model's experts");
      const int64_t rank = rank_of(layers_.at(product.path)) / product.experts;
      if (!config_.scales_rank_of_experts) check_named(product.path, product.parameter, rank);
    }
    for (const auto& unit : units)
      for (const ParameterSlot& slot : unit->parameters())
        for (const StoredPart& part : parts_of(model, slot.name, slot.tensor->sizes())) {
          const std::string path = layer_of(model, part.tensor);
          if (path.empty()) continue;
          left.erase(path);
          std::vector<int64_t> shape = {shape_of(path, &Layer::b)[0], shape_of(path, &Layer::a)[1]};
          if (lies_transposed(part)) std::swap(shape[0], shape[1]);
          if (part.shape != shape) refuse(path, "has a different shape than the base model's layer");
          check_named(path, path, rank_of(layers_.at(path)));
        }
    if (!left.empty())
      refuse(*left.begin(),
             "names no separate layer of the base model: the layer is absent, or tied to another one");
  }

  // Adds the adapter's product to a box of the layer's weight [out, in] that starts at `offset`.
  at::Tensor box(const std::string& path, const std::vector<int64_t>& offset,
                 const std::vector<int64_t>& size) const {
    const Layer& layer = layers_.at(path);
    const int64_t rank = rank_of(layer);
    const at::Tensor a = at::empty({rank, size[1]}, at::kFloat), b = at::empty({size[0], rank}, at::kFloat);
    file_.read(layer.a, std::vector<int64_t>{0, offset[1]}, a);
    file_.read(layer.b, std::vector<int64_t>{offset[0], 0}, b);
    return at::matmul(b, a) * config_.scale_at(path, rank);
  }

  // Adds the adapter to `piece`, some rows and all columns of the layer's weight, and scales each row of the
  // sum to its trained length, in float32 (DoRA).
  at::Tensor scaled(const std::string& path, const at::Tensor& piece, int64_t first_row) const {
    const at::Tensor lengths = at::empty({piece.size(0)}, at::kFloat);
    file_.read(layers_.at(path).magnitude, std::vector<int64_t>{first_row}, lengths);
    const at::Tensor sum = piece.to(at::kCPU, at::kFloat) + box(path, {first_row, 0}, piece.sizes().vec());
    return sum * (lengths / at::linalg_vector_norm(sum, 2, at::IntArrayRef{1}, false, {})).unsqueeze(1);
  }
  bool scales_rows(const std::string& path) const { return !layers_.at(path).magnitude.empty(); }

  // Adds the adapter to a box of an expert parameter, [experts, out, in] or [experts, columns, width, in].
  void add_to_experts(const std::string& name, const std::vector<int64_t>& offset,
                      const at::Tensor& box) const {
    const auto found = products_.find(name);
    if (found == products_.end()) return;
    const ExpertProduct& product = found->second;
    const Layer& layer = layers_.at(product.path);
    const int64_t all = rank_of(layer), rank = all / product.experts, in = box.size(-1);
    const at::Tensor a = at::empty({box.size(0) * rank, in}, at::kFloat),
                     b = at::empty({product.out, all}, at::kFloat);
    file_.read(layer.a, std::vector<int64_t>{offset[0] * rank, offset.back()}, a);
    file_.read(layer.b, std::vector<int64_t>{0, 0}, b);
    const at::Tensor of_expert = b.view({product.out, rank, product.experts});
    for (int64_t i = 0; i < box.size(0); ++i) {
      at::Tensor more = at::matmul(of_expert.select(2, offset[0] + i), a.narrow(0, i * rank, rank)) *
                        config_.scale_at(product.parameter, rank);
      if (box.dim() == 4) more = more.view({2, -1, in}).narrow(0, offset[1], box.size(1));
      const int64_t dim = box.dim() - 3;  // the rows' dimension
      more = more.narrow(dim, offset[dim + 1], box.size(dim + 1));
      at::Tensor of_box = box.select(0, i);
      of_box.copy_(of_box.to(at::kFloat) + more.to(box.device()));
    }
  }

  // Returns the path of the adapter of the layer with this tensor, whose name may have another prefix; "":
  // none.
  std::string layer_of(const ModelSpec& model, const std::string& tensor) const {
    constexpr std::string_view kWeight = ".weight";
    if (!tensor.ends_with(kWeight)) return "";
    const std::string path = tensor.substr(0, tensor.size() - kWeight.size());
    if (has(path)) return path;
    // a tied head is not another name of its weight
    const std::string end = tensor.substr(path.rfind('.') + 1);
    for (const std::string& other : model.other_names(tensor)) {
      const std::string elsewhere = other.substr(0, other.size() - kWeight.size());
      if (other.ends_with(end) && has(elsewhere)) return elsewhere;
    }
    return "";
  }

 private:
  struct Layer {
    std::string a, b, magnitude = {};  // keys; magnitude: DoRA only
  };

  static SafetensorsFile opened(const fs::path& file) {
    if (!fs::exists(file))
      throw Error(ErrorCode::input, file.string(), "does not exist",
                  "adapter_model.bin is a pickle, which only Python can read; load it with peft and write "
                  "safetensors with save_pretrained()");
    return SafetensorsFile(file);
  }

  void add(const std::string& key, const StoredTensor& tensor) {
    if (key.find(".lora_velora_embed") != key.npos) return;  // used in the backward pass only
    if (key.ends_with(".base_layer.weight")) return;         // peft saves the base weight of an adapted head
    const std::string prefix = "base_model.model.";
    if (key.starts_with(prefix) && key.ends_with(kMagnitude) && tensor.shape.size() == 1)
      return (
          void)(layers_[key.substr(prefix.size(), key.size() - prefix.size() - kMagnitude.size())].magnitude =
                    key);
    for (const auto& [end, slot] :
         {std::pair{std::string(".lora_A.weight"), &Layer::a}, {std::string(".lora_B.weight"), &Layer::b}}) {
      if (!key.starts_with(prefix) || !key.ends_with(end) || tensor.shape.size() != 2) continue;
      layers_[key.substr(prefix.size(), key.size() - prefix.size() - end.size())].*slot = key;
      return;
    }
    throw Error(ErrorCode::not_built, path_.string(),
                "holds the tensor " + text::quoted(key) +
                    ", but heddle reads only lora_A.weight, lora_B.weight and lora_magnitude_vector",
                "merge it with peft: merge_and_unload().save_pretrained(DIR)");
  }

  std::vector<int64_t> shape_of(const std::string& path, std::string Layer::*slot) const {
    return file_.tensors().at(layers_.at(path).*slot).shape;
  }
  // Throws for a layer that adapter_config.json does not name: PEFT would ignore its tensors.
  void check_named(const std::string& path, const std::string& key, int64_t rank) const {
    if (!config_.adapts(key))
      refuse(path,
             "is not among the layers that adapter_config.json names (target_modules, exclude_modules, "
             "layers_to_transform, target_parameters)");
    if (const int64_t named = config_.rank_at(key); named != rank)
      refuse(path, "has rank " + std::to_string(rank) +
                       ", but r and rank_pattern of adapter_config.json give " + std::to_string(named));
  }
  int64_t rank_of(const Layer& layer) const { return file_.tensors().at(layer.a).shape[0]; }

  [[noreturn]] void refuse(const std::string& path, const std::string& what) const {
    throw Error(ErrorCode::input, path_.string(), "the adapter of '" + path + "' " + what,
                "check that the adapter was trained for the base model named in adapter_config.json");
  }

  fs::path path_;
  AdapterConfig config_;
  SafetensorsFile file_;
  std::map<std::string, Layer> layers_;
  std::map<std::string, ExpertProduct> products_;  // those with an adapter
};

// Applies the DoRA scale. A row's length needs the whole row, so a box of some columns reads the other
// columns too.
void scale_rows(const Weights& weights, const std::string& path, const ParameterSource& base,
                const Shard& shard, int64_t first_row, const stored::Common& common) {
  Shard wide = shard;
  wide.offset = {common.in_parameter[0], 0};
  wide.tensor = at::empty({common.parameter_size[0], shard.shape[1]}, shard.tensor.options());
  base(wide);
  const at::Tensor scaled = weights.scaled(path, wide.tensor.detach(), first_row);
  const at::Tensor piece = checkpoint::piece_of(shard.tensor.detach(), shard.offset, common);
  piece.copy_(scaled.narrow(1, common.in_parameter[1], common.parameter_size[1]));
}

// Adds the adapter of the layer at `path` to `part`, a box of the layer's weight.
void add(const Weights& weights, const std::string& path, const ParameterSource& base, const Shard& shard,
         const StoredPart& part) {
  const auto common = stored::within_parameter(part, shard.offset, shard.tensor.sizes());
  if (!common) return;
  std::vector<int64_t> offset = common->in_tensor;
  if (lies_transposed(part)) std::swap(offset[0], offset[1]);
  if (weights.scales_rows(path)) return scale_rows(weights, path, base, shard, offset[0], *common);
  const at::Tensor more = weights.box(path, offset, common->parameter_size);
  at::Tensor piece = checkpoint::piece_of(shard.tensor.detach(), shard.offset, *common);
  piece.copy_(piece.to(at::kFloat) + more.to(piece.device()));
}

}  // namespace

ParameterSource with_adapter(ParameterSource base, const fs::path& directory,
                             std::shared_ptr<const ModelSpec> model) {
  const auto weights = std::make_shared<Weights>(directory);
  weights->check_fits(*model);
  return [base = std::move(base), weights, model = std::move(model)](const Shard& shard) {
    if (!base(shard)) return false;
    if (shard.tensor.is_meta()) return true;
    const at::NoGradGuard no_gradients;
    weights->add_to_experts(shard.name, shard.offset, shard.tensor.detach());
    for (const StoredPart& part : parts_of(*model, shard.name, shard.shape)) {
      const std::string path = weights->layer_of(*model, part.tensor);
      if (!path.empty()) add(*weights, path, base, shard, part);
    }
    return true;
  };
}

}  // namespace heddle

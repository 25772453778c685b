// Tensor parallel plan: NeMo AutoModel's default for Llama, with the head split together with its loss.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "heddle/decoder/description.h"
#include "lib/decoder/units.h"

namespace heddle::decoder {
namespace {

enum class Splitting { none, whole, split };

Splitting attention_of(const Layer& layer) {
  if (std::holds_alternative<Latent>(layer.mixer)) return Splitting::whole;
  const auto* attention = std::get_if<Attention>(&layer.mixer);
  if (attention == nullptr) return Splitting::none;
  return attention->head_norm == Attention::HeadNorm::whole ? Splitting::whole : Splitting::split;
}

// Adds the style of a module in some layers, as one pattern if no other layer has a module with the name.
class Writer {
 public:
  // The layers' modules are named "<place>.N".
  Writer(std::string place, const std::vector<Layer>& layers, TensorPlan& plan)
      : place_(std::move(place)), layers_(layers), plan_(plan) {}
  const std::vector<Layer>& layers() const { return layers_; }

  template <class Has, class Allows>
  void add(const std::string& module, const char* style, Has has, Allows allows) {
    const auto split = [&](const Layer& layer) { return !has(layer) || allows(layer); };
    const bool any = std::any_of(layers_.begin(), layers_.end(), has);
    if (any && std::all_of(layers_.begin(), layers_.end(), split)) {
      plan_.emplace_back(place_ + ".*." + module, style);
      return;
    }
    for (size_t i = 0; i < layers_.size(); ++i)
      if (has(layers_[i]) && allows(layers_[i]))
        plan_.emplace_back(place_ + "." + std::to_string(i) + "." + module, style);
  }

 private:
  std::string place_;
  const std::vector<Layer>& layers_;
  TensorPlan& plan_;
};

bool is_gated(const Layer& layer) {
  const auto* mlp = std::get_if<Mlp>(&layer.feed_forward);
  return mlp != nullptr && mlp->gated;
}

std::string shared_of(const Layer& layer) {
  const auto* mixture = std::get_if<Mixture>(&layer.feed_forward);
  if (mixture == nullptr || mixture->shared_width == 0) return "";
  return mixture->shared_gate ? "shared_expert" : "shared_experts";
}

bool has_maker(const Layer& layer, const MixerMaker* maker) {
  const auto is = [&](const std::shared_ptr<const MixerMaker>& held) { return held.get() == maker; };
  const auto* first = std::get_if<std::shared_ptr<const MixerMaker>>(&layer.mixer);
  return (first != nullptr && is(*first)) || std::any_of(layer.beside.begin(), layer.beside.end(), is);
}

std::vector<const MixerMaker*> makers_of(const std::vector<Layer>& layers) {
  std::vector<const MixerMaker*> all;
  const auto add = [&](const std::shared_ptr<const MixerMaker>& held) {
    if (std::find(all.begin(), all.end(), held.get()) == all.end()) all.push_back(held.get());
  };
  for (const Layer& layer : layers) {
    if (const auto* held = std::get_if<std::shared_ptr<const MixerMaker>>(&layer.mixer)) add(*held);
    for (const auto& held : layer.beside) add(held);
  }
  return all;
}

void add_mixers(Writer& writer) {
  for (const MixerMaker* maker : makers_of(writer.layers())) {
    const auto same = [maker](const Layer& layer) { return has_maker(layer, maker); };
    for (const auto& [path, style] : maker->tensor_plan())
      writer.add(maker->name() + "." + path, style.c_str(), same, same);
  }
}

// Attention and MLPs first, then other mixers.
void add_layers(Writer writer) {
  const auto attends = [](const Layer& layer) { return attention_of(layer) != Splitting::none; };
  const auto splits = [](const Layer& layer) { return attention_of(layer) == Splitting::split; };
  const auto dense = [](const Layer& layer) { return std::holds_alternative<Mlp>(layer.feed_forward); };
  const auto keys = [&](const Layer& layer) {
    const auto* attention = std::get_if<Attention>(&layer.mixer);
    return attends(layer) && (attention == nullptr || !attention->keys_of_layer);
  };
  const auto values = [&](const Layer& layer) {
    const auto* attention = std::get_if<Attention>(&layer.mixer);
    return keys(layer) && (attention == nullptr || !attention->keys_are_values);
  };
  writer.add("self_attn.q_proj", "colwise", attends, splits);
  writer.add("self_attn.k_proj", "colwise", keys, splits);
  writer.add("self_attn.v_proj", "colwise", values, splits);
  const auto gates = [](const Layer& layer) {
    const auto* attention = std::get_if<Attention>(&layer.mixer);
    return attention != nullptr && attention->gate.width != OutputGate::Width::none;
  };
  writer.add("self_attn.g_proj", "colwise", gates,
             [&](const Layer& layer) { return gates(layer) && splits(layer); });
  writer.add("mlp.gate_proj", "colwise", is_gated, is_gated);
  writer.add("mlp.up_proj", "colwise", dense, dense);
  writer.add("self_attn.o_proj", "rowwise", attends, splits);
  writer.add("mlp.down_proj", "rowwise", dense, dense);
  for (const std::string shared : {"shared_expert", "shared_experts"}) {
    const auto has = [&](const Layer& layer) { return shared_of(layer) == shared; };
    const auto gated = [&](const Layer& layer) {
      return has(layer) && std::get<Mixture>(layer.feed_forward).shared_gated;
    };
    writer.add("mlp." + shared + ".gate_proj", "colwise", gated, gated);
    writer.add("mlp." + shared + ".up_proj", "colwise", has, has);
    writer.add("mlp." + shared + ".down_proj", "rowwise", has, has);
  }
  add_mixers(writer);
}

}  // namespace

TensorPlan tensor_plan(const Model& model) {
  TensorPlan plan = {{"model.embed_tokens", "rowwise_rep"}};
  if (model.positions > 0) plan.emplace_back("model.embed_positions", "rowwise_rep");
  if (model.layer_inputs.width > 0)
    plan.emplace_back("model.layer_inputs.embed_tokens_per_layer", "rowwise_rep");
  add_layers({"model.layers", model.layers, plan});
  if (!model.head_bias) plan.emplace_back("lm_head", "colwise");
  if (model.mtp.tokens == 0) return plan;
  plan.emplace_back("mtp.embed_tokens", "rowwise_rep");
  std::vector<Layer> mtp;
  for (size_t i = 0; i < heads_of(model.mtp); ++i)
    mtp.insert(mtp.end(), model.mtp.layers.begin(), model.mtp.layers.end());
  add_layers({"mtp.layers", mtp, plan});
  return plan;
}

}  // namespace heddle::decoder

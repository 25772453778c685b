// Builds the units of a decoder, and the tables that its layers share.
#include "lib/decoder/units.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/dropout.h"
#include "lib/decoder/attention/attention.h"
#include "lib/decoder/embedding.h"
#include "lib/decoder/feed_forward.h"
#include "lib/decoder/head.h"
#include "lib/decoder/latent/latent_attention.h"
#include "lib/decoder/layer.h"
#include "lib/decoder/mtp/multi_token_prediction.h"
#include "lib/decoder/norm.h"

namespace heddle::decoder {
namespace {

// Tables of angles, one per distinct rotation.
class Rotaries {
 public:
  std::shared_ptr<Rotary> of(int64_t head_dim, const Rotation& rotation) {
    if (rotation.dim == 0) return nullptr;
    for (const Made& made : made_)
      if (made.head_dim == head_dim && made.rotation == rotation) return made.rotary;
    made_.push_back({head_dim, rotation, make(head_dim, rotation)});
    return made_.back().rotary;
  }

 private:
  static std::shared_ptr<Rotary> make(int64_t head_dim, const Rotation& rotation) {
    const model::HeadPart part{rotation.dim == head_dim ? 0 : head_dim, 0, rotation.interleaved};
    if (!rotation.frequencies.empty())
      return std::make_shared<Rotary>(at::tensor(rotation.frequencies, at::kFloat), 1, part);
    if (rotation.of_whole_head) return std::make_shared<Rotary>(first_of_head(head_dim, rotation));
    if (!rotation.interleaved)
      return std::make_shared<Rotary>(head_dim, rotation.theta, rotation.scaling, rotation.dim);
    return std::make_shared<Rotary>(model::rotary_frequencies(rotation.dim, rotation.theta, rotation.scaling),
                                    model::rotary_factor(rotation.scaling), part);
  }
  // A frequency of 0 does not rotate its pair.
  static at::Tensor first_of_head(int64_t head_dim, const Rotation& rotation) {
    at::Tensor all = model::rotary_frequencies(head_dim, rotation.theta, rotation.scaling).clone();
    all.narrow(0, rotation.dim / 2, (head_dim - rotation.dim) / 2).zero_();
    return all;
  }
  struct Made {
    int64_t head_dim;
    Rotation rotation;
    std::shared_ptr<Rotary> rotary;
  };
  std::vector<Made> made_;
};

// Returns null if the layer has no mixture of experts.
const Mixture* mixture_of(const Layer& layer) {
  return layer.experts_beside ? &*layer.experts_beside : std::get_if<Mixture>(&layer.feed_forward);
}

[[noreturn]] void refuse_indexer(size_t layer, const std::string& what, const std::string& hint) {
  throw Error(ErrorCode::config, "model", "the indexer of layer " + std::to_string(layer) + " " + what, hint);
}

void check_indexers(const Model& model) {
  for (const Layer& layer : model.mtp.layers)
    if (indexer_of(layer) != nullptr)
      refuse_indexer(model.layers.size(), "is in a multi-token prediction head, where none is built",
                     "use a latent attention without an indexer in the layers of the heads");
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const Indexer* one = indexer_of(model.layers[i]);
    if (one == nullptr) continue;
    const Latent& latent = std::get<Latent>(model.layers[i].mixer);
    if (latent.query_rank == 0)
      refuse_indexer(i, "needs a latent of queries", "give q_lora_rank, a number above 0");
    if (one->head_dim < latent.rotary)
      refuse_indexer(i,
                     "has heads of " + std::to_string(one->head_dim) + " elements, of which " +
                         std::to_string(latent.rotary) + " are rotated",
                     "set index_head_dim to at least qk_rope_head_dim");
    if (one->of_layer_before && (i == 0 || indexer_of(model.layers[i - 1]) == nullptr))
      refuse_indexer(i, "is shared with the previous layer, which has none", "start indexer_types with full");
  }
}

[[noreturn]] void refuse_shared(size_t layer, const std::string& what) {
  throw Error(ErrorCode::config, "model", "layer " + std::to_string(layer) + " uses keys of " + what,
              "set Attention::keys_of_layer to an earlier layer with its own keys and the same heads");
}

void check_shared_keys(const Model& model) {
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const auto* form = std::get_if<Attention>(&model.layers[i].mixer);
    if (form == nullptr || !form->keys_of_layer) continue;
    const int64_t source = *form->keys_of_layer;
    if (source < 0 || source >= static_cast<int64_t>(i))
      refuse_shared(i, "layer " + std::to_string(source) + ", which is not an earlier layer");
    const auto* other = std::get_if<Attention>(&model.layers[static_cast<size_t>(source)].mixer);
    if (other == nullptr || other->keys_of_layer || other->kv_heads != form->kv_heads ||
        other->head_dim != form->head_dim || other->options.value_dim != form->options.value_dim)
      refuse_shared(i, "layer " + std::to_string(source) + ", which has no such keys");
  }
  for (const Layer& layer : model.mtp.layers)
    if (const auto* form = std::get_if<Attention>(&layer.mixer); form != nullptr && form->keys_of_layer)
      refuse_shared(model.layers.size(), "another layer in a multi-token prediction head");
}

class Maker {
 public:
  Maker(const Model& model, const at::TensorOptions& options) : model_(model), options_(options) {
    check_indexers(model);
    check_shared_keys(model);
    check_streams(model);
    check_blocks(model);
    for (const Layer& layer : model.layers)
      if (const Mixture* mixture = mixture_of(layer)) {
        ++sparse_;
        if (mixture->router.balance.form == model::BalanceLoss::Form::model)
          coefficient_ = mixture->router.balance.coefficient;
      }
    if (coefficient_) balance_ = std::make_shared<model::LayerBalance>(sparse_, *coefficient_);
  }

  std::unique_ptr<DecoderLayer> layer(int64_t index) {
    const Layer& form = model_.layers[static_cast<size_t>(index)];
    return std::make_unique<DecoderLayer>(form, model_.width, parts_of(form, index), options_);
  }

  std::unique_ptr<MultiTokenPrediction> mtp() {
    const MtpHeads& form = model_.mtp;
    const size_t count = form.layers.size();
    MtpLayers layers;
    for (size_t i = 0; i < heads_of(form) * count; ++i) {
      const Layer& layer = form.layers[i % count];
      const MtpLayer::Place place{i % count == 0, i % count == count - 1};
      auto parts = parts_of(layer, static_cast<int64_t>(model_.layers.size() + i));
      layers.push_back(std::make_unique<MtpLayer>(layer, model_, std::move(parts), place, options_));
    }
    return std::make_unique<MultiTokenPrediction>(model_, std::move(layers), options_);
  }

 private:
  // Layers of prediction heads are numbered after those of the model, and carry no tensors.
  DecoderLayer::Parts parts_of(const Layer& form, int64_t index) {
    DecoderLayer::Parts parts;
    parts.layer = "model.layers." + std::to_string(index);
    if (index < static_cast<int64_t>(model_.layers.size())) {
      parts.carried = Carried(model_, index);
      if (model_.layer_inputs.width > 0)
        parts.input = std::make_unique<LayerInput>(model_, form.norm, options_);
    }
    std::visit([&](const auto& mixer) { make(mixer, parts); }, form.mixer);
    for (const auto& maker : form.beside) add_beside(*maker, parts);
    std::visit([&](const auto& part) { make(part, index, parts); }, form.feed_forward);
    if (form.experts_beside) add_experts(form, index, parts);
    if (model_.hyper_connections) parts.attn_hc = streams(), parts.ffn_hc = streams();
    if (model_.block_residuals) {
      parts.attn_res = std::make_unique<BlockResidual>(model_, /*trains=*/index > 0, options_);
      parts.mlp_res = std::make_unique<BlockResidual>(model_, /*trains=*/true, options_);
      parts.begins_block = index % model_.block_residuals->size == 0;
    }
    return parts;
  }
  void make(const Attention& form, DecoderLayer::Parts& parts) {
    const Tables tables{rotaries_.of(form.head_dim, form.rotation), queries_of(form.query_scaling)};
    parts.mixer =
        std::make_unique<SelfAttention>(form, model_.width, first_values(), tables, parts.carried.shared,
                                        model::draw_salt(parts.layer + ".self_attn"), options_);
  }
  void make(const Latent& form, DecoderLayer::Parts& parts) {
    const Rotation rotation{form.rotated ? form.rotary : 0, form.theta, form.scaling};
    const Tables tables{rotaries_.of(form.rotary, rotation), queries_of(form.query_scaling)};
    parts.mixer = std::make_unique<LatentAttention>(form, model_.width, model_.init_std, tables,
                                                    parts.carried.chosen, options_);
  }
  void make(const std::shared_ptr<const MixerMaker>& maker, DecoderLayer::Parts& parts) const {
    parts.mixer = maker->make(model_.width, model_.init_std, options_);
    parts.mixer_name = maker->name();
  }
  void make(Absent, DecoderLayer::Parts&) const {}
  void add_beside(const MixerMaker& maker, DecoderLayer::Parts& parts) const {
    std::string name = maker.name();
    bool taken = parts.mixer_name == name;
    for (const auto& other : parts.beside) taken = taken || other.first == name;
    if (parts.mixer == nullptr || taken)
      throw Error(ErrorCode::config, "model",
                  "the mixer '" + name + "' is parallel to " +
                      (taken ? "another mixer with this name" : "no first mixer"),
                  "set Layer::mixer to the first mixer, and use distinct names in a layer");
    parts.beside.emplace_back(std::move(name), maker.make(model_.width, model_.init_std, options_));
  }

  void make(const Mlp& form, int64_t, DecoderLayer::Parts& parts) const {
    parts.feed_forward = std::make_unique<FeedForward>(form, model_.width, first_values(), options_);
  }
  void make(const Mixture& form, int64_t index, DecoderLayer::Parts& parts) {
    parts.feed_forward = mixture(form, index);
  }
  std::unique_ptr<MoeLayer> mixture(Mixture form, int64_t index) {
    form.router.hidden = model_.width;
    form.router.group = "moe";
    form.router.layer = index;
    form.router.place = place_++;
    form.router.layers = balance_;
    return make_mixture(form, model_.width, model_.init_std, options_);
  }
  void add_experts(const Layer& form, int64_t index, DecoderLayer::Parts& parts) {
    if (form.order != Layer::Order::both || !std::holds_alternative<Mlp>(form.feed_forward))
      throw Error(
          ErrorCode::config, "model",
          "layer " + std::to_string(index) + " has parallel experts, but no MLP with norms before and after",
          "use Layer::experts_beside with an Mlp and Layer::Order::both");
    auto experts = mixture(*form.experts_beside, index);
    experts->add_norm("pre_feedforward_layernorm_2", make_norm(form.norm, model_.width, options_));
    parts.experts = std::move(experts);
    parts.experts_name = "moe";
  }
  void make(Absent, int64_t, DecoderLayer::Parts&) const {}
  std::unique_ptr<HyperConnection> streams() const {
    return std::make_unique<HyperConnection>(model_, HyperConnection::Place::of_layer, options_);
  }

  std::shared_ptr<QueryFactors> queries_of(const QueryScaling& scaling) {
    if (scaling.beta == 0) return nullptr;
    if (!queries_ || queries_->form() != scaling) queries_ = std::make_shared<QueryFactors>(scaling);
    return queries_;
  }
  FirstValues first_values() const {
    return {model_.init_std, model_.residual_std > 0 ? model_.residual_std : model_.init_std};
  }

  const Model& model_;
  const at::TensorOptions& options_;
  Rotaries rotaries_;
  std::shared_ptr<QueryFactors> queries_;
  int64_t sparse_ = 0, place_ = 0;
  std::optional<double> coefficient_;
  std::shared_ptr<model::LayerBalance> balance_;  // null: no loss over all layers
};

// Stores the embedding's weight in `weight`.
std::unique_ptr<ModuleUnit> embedding_unit(const Model& model, const at::TensorOptions& options,
                                           at::Tensor& weight) {
  const std::string name = "model.embed_tokens";
  auto tokens = std::make_unique<Embedding>(model.vocabulary, model.width, model.padding,
                                            normal(model.init_std), options, model.embedding_multiplier);
  weight = tokens->weight;
  if (model.positions == 0 && model.embedding_dropout == 0 && model.layer_inputs.width == 0 &&
      !model.embedding_norm && !model.hyper_connections)
    return std::make_unique<ModuleUnit>(name, name, std::move(tokens));
  auto first = std::make_unique<InputEmbedding>(std::move(tokens), model, options);
  return std::make_unique<ModuleUnit>(name, "model", std::move(first));
}

}  // namespace

Units make_units(const Model& model, const at::TensorOptions& options) {
  Units units;
  const auto plan = std::make_shared<const TensorPlan>(tensor_plan(model));
  const auto add = [&](std::unique_ptr<ModuleUnit> unit) {
    unit->set_tensor_plan(plan);
    units.push_back(std::move(unit));
  };
  auto head = std::make_unique<Head>(model, options);
  at::Tensor embedding;
  add(embedding_unit(model, options, embedding));
  if (model.tied) head->share(embedding);
  Maker maker(model, options);
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const std::string name = "model.layers." + std::to_string(i);
    add(std::make_unique<ModuleUnit>(name, name, maker.layer(static_cast<int64_t>(i))));
  }
  if (model.mtp.tokens > 0) {
    auto mtp = maker.mtp();
    mtp->share(embedding);
    head->add_mtp(std::move(mtp));
  }
  auto last = std::make_unique<ModuleUnit>("lm_head", "", std::move(head));
  if (model.mtp.tokens > 0) last->tie("mtp.embed_tokens.weight", "model.embed_tokens.weight");
  if (model.tied) last->tie("lm_head.weight", "model.embed_tokens.weight");
  add(std::move(last));
  return units;
}

}  // namespace heddle::decoder

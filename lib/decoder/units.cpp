// The units of a decoder, and what its layers share.
#include "lib/decoder/units.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/model/module_unit.h"
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

// Tables of angles, each for all layers with the same rotation.
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
    if (!rotation.interleaved)
      return std::make_shared<Rotary>(head_dim, rotation.theta, rotation.scaling, rotation.dim);
    const model::HeadPart part{rotation.dim == head_dim ? 0 : head_dim, 0, true};
    return std::make_shared<Rotary>(model::rotary_frequencies(rotation.dim, rotation.theta, rotation.scaling),
                                    model::rotary_factor(rotation.scaling), part);
  }
  struct Made {
    int64_t head_dim;
    Rotation rotation;
    std::shared_ptr<Rotary> rotary;
  };
  std::vector<Made> made_;
};

class Maker {
 public:
  Maker(const Model& model, const at::TensorOptions& options) : model_(model), options_(options) {
    for (const Layer& layer : model.layers)
      if (const auto* mixture = std::get_if<Mixture>(&layer.feed_forward)) {
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
  DecoderLayer::Parts parts_of(const Layer& form, int64_t index) {
    DecoderLayer::Parts parts;
    std::visit([&](const auto& mixer) { make(mixer, parts); }, form.mixer);
    for (const auto& maker : form.beside) add_beside(*maker, parts);
    std::visit([&](const auto& part) { make(part, index, parts); }, form.feed_forward);
    return parts;
  }
  void make(const Attention& form, DecoderLayer::Parts& parts) {
    const Tables tables{rotaries_.of(form.head_dim, form.rotation), queries_of(form.query_scaling)};
    parts.mixer = std::make_unique<SelfAttention>(form, model_.width, first_values(), tables, options_);
  }
  void make(const Latent& form, DecoderLayer::Parts& parts) {
    const Rotation rotation{form.rotated ? form.rotary : 0, form.theta, form.scaling};
    parts.mixer = std::make_unique<LatentAttention>(form, model_.width, model_.init_std,
                                                    rotaries_.of(form.rotary, rotation), options_);
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
                  "the mixer '" + name + "' is beside " + (taken ? "another of that name" : "no other"),
                  "Layer::mixer is the first mixer, and no two of a layer have one name");
    parts.beside.emplace_back(std::move(name), maker.make(model_.width, model_.init_std, options_));
  }

  void make(const Mlp& form, int64_t, DecoderLayer::Parts& parts) const {
    parts.feed_forward = std::make_unique<FeedForward>(form, model_.width, first_values(), options_);
  }
  void make(Mixture form, int64_t index, DecoderLayer::Parts& parts) {
    form.router.hidden = model_.width;
    form.router.group = "moe";
    form.router.layer = index;
    form.router.place = place_++;
    form.router.layers = balance_;
    parts.feed_forward = make_mixture(form, model_.width, model_.init_std, options_);
  }
  void make(Absent, int64_t, DecoderLayer::Parts&) const {}

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
  std::shared_ptr<model::LayerBalance> balance_;  // null: no loss goes over all layers
};

// `weight` becomes the embedding's.
std::unique_ptr<ModuleUnit> embedding_unit(const Model& model, const at::TensorOptions& options,
                                           at::Tensor& weight) {
  const std::string name = "model.embed_tokens";
  auto tokens = std::make_unique<Embedding>(model.vocabulary, model.width, model.padding,
                                            normal(model.init_std), options, model.embedding_multiplier);
  weight = tokens->weight;
  if (model.positions == 0) return std::make_unique<ModuleUnit>(name, name, std::move(tokens));
  auto both = std::make_unique<PositionedEmbedding>(std::move(tokens), model, options);
  return std::make_unique<ModuleUnit>(name, "model", std::move(both));
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

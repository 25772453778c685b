// The units of the family's models.
#include "make_units.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "decoder_layer.h"
#include "head.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/embedding.h"

namespace heddle::llama {

// NeMo AutoModel's default plan, the head split with its loss.
const TensorPlan& tensor_plan() {
  static const TensorPlan plan = {{"model.embed_tokens", "rowwise_rep"},
                                  {"model.layers.*.self_attn.q_proj", "colwise"},
                                  {"model.layers.*.self_attn.k_proj", "colwise"},
                                  {"model.layers.*.self_attn.v_proj", "colwise"},
                                  {"model.layers.*.mlp.gate_proj", "colwise"},
                                  {"model.layers.*.mlp.up_proj", "colwise"},
                                  {"model.layers.*.self_attn.o_proj", "rowwise"},
                                  {"model.layers.*.mlp.down_proj", "rowwise"},
                                  {"lm_head", "colwise"}};
  return plan;
}

TensorPlan tensor_plan(const ModelConfig& config) {
  const Mixture& mixture = config.mixture;
  bool any_dense = false;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    any_dense = any_dense || !mixture.sparse(layer);
  TensorPlan plan;
  for (const auto& [path, style] : tensor_plan()) {
    const bool attention = path.find(".self_attn.") != path.npos;
    const bool dense = path.find(".mlp.") != path.npos;
    if ((dense && !any_dense) || (attention && (config.qk_norm_of_whole || config.latent.rank > 0))) continue;
    plan.emplace_back(path, style);
  }
  if (mixture.shared_width > 0)
    for (const auto& [name, style] :
         {std::pair{"gate_proj", "colwise"}, {"up_proj", "colwise"}, {"down_proj", "rowwise"}})
      plan.emplace_back("model.layers.*.mlp." + std::string(mixture.shared_name()) + "." + name, style);
  return plan;
}

Units make_units(const ModelConfig& config, const at::TensorOptions& options) {
  Units units;
  const auto plan = std::make_shared<const TensorPlan>(tensor_plan(config));
  const auto add = [&](std::unique_ptr<ModuleUnit> unit) {
    unit->set_tensor_plan(plan);
    units.push_back(std::move(unit));
  };
  const Init normal{Init::Kind::normal, config.initializer_range};
  auto embedding = std::make_unique<Embedding>(config.vocab_size, config.hidden_size, config.pad_token_id,
                                               normal, options);
  auto head = std::make_unique<Head>(config, options);
  if (config.tie_word_embeddings) head->share(embedding->weight);
  add(std::make_unique<ModuleUnit>("model.embed_tokens", "model.embed_tokens", std::move(embedding)));
  SharedByLayers shared{
      std::make_shared<Rotary>(config.head_dim, config.rope_theta, config.rope_scaling, config.rotary_dim()),
      {}};
  int64_t sparse = 0;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) sparse += config.mixture.sparse(i) ? 1 : 0;
  if (config.mixture.balance.form == model::BalanceLoss::Form::model)
    shared.balance = std::make_shared<model::LayerBalance>(sparse, config.mixture.balance.coefficient);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string name = "model.layers." + std::to_string(i);
    add(std::make_unique<ModuleUnit>(name, name, std::make_unique<DecoderLayer>(config, i, shared, options)));
  }
  auto last = std::make_unique<ModuleUnit>("lm_head", "", std::move(head));
  if (config.tie_word_embeddings) last->tie("lm_head.weight", "model.embed_tokens.weight");
  add(std::move(last));
  return units;
}

}  // namespace heddle::llama

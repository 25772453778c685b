// The units of Llama, Qwen2 and Qwen3.
#include "make_units.h"

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

Units make_units(const ModelConfig& config, const at::TensorOptions& options) {
  Units units;
  const auto plan = std::make_shared<const TensorPlan>(tensor_plan());
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
  auto rotary = std::make_shared<Rotary>(config.head_dim, config.rope_theta, config.rope_scaling);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string name = "model.layers." + std::to_string(i);
    add(std::make_unique<ModuleUnit>(name, name, std::make_unique<DecoderLayer>(config, rotary, options)));
  }
  auto last = std::make_unique<ModuleUnit>("lm_head", "", std::move(head));
  if (config.tie_word_embeddings) last->tie("lm_head.weight", "model.embed_tokens.weight");
  add(std::move(last));
  return units;
}

}  // namespace heddle::llama

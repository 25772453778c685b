// The units of Llama, Qwen2 and Qwen3.
#include "trainer/models/make_units.h"

#include <memory>
#include <string>
#include <utility>

#include "heddle/model/embedding.h"
#include "heddle/model/module_unit.h"
#include "trainer/models/decoder_layer.h"
#include "trainer/models/head.h"

namespace heddle {

Units make_units(const ModelConfig& config, const at::TensorOptions& options) {
  Units units;
  const Init normal{Init::Kind::normal, config.initializer_range};
  auto embedding = std::make_unique<Embedding>(config.vocab_size, config.hidden_size, config.pad_token_id,
                                               normal, options);
  auto head = std::make_unique<Head>(config, options);
  if (config.tie_word_embeddings) head->share(embedding->weight);
  units.push_back(
      std::make_unique<ModuleUnit>("model.embed_tokens", "model.embed_tokens", std::move(embedding)));
  auto rotary = std::make_shared<Rotary>(config.head_dim, config.rope_theta, config.rope_scaling);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string name = "model.layers." + std::to_string(i);
    units.push_back(
        std::make_unique<ModuleUnit>(name, name, std::make_unique<DecoderLayer>(config, rotary, options)));
  }
  auto last = std::make_unique<ModuleUnit>("lm_head", "", std::move(head));
  if (config.tie_word_embeddings) last->tie("lm_head.weight", "model.embed_tokens.weight");
  units.push_back(std::move(last));
  return units;
}

}  // namespace heddle

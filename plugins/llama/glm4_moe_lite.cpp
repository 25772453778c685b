// GLM-4.7-Flash: latent attention whose values are wider than its keys, and dense layers by mlp_layer_types.
#include "families.h"
#include "heddle/decoder/benchmark.h"
#include "latent.h"

namespace heddle::llama {
namespace {

struct LiteKeys : LatentKeys {
  LiteKeys() {
    q_lora_rank = 768, qk_nope_head_dim = 192, v_head_dim = 256;
    vocab_size = 154880, hidden_size = 2048, intermediate_size = 10240;
    num_hidden_layers = 47, num_attention_heads = 20;
    max_position_embeddings = 202752, rms_norm_eps = 1e-5;
    experts = 64, experts_of_token = 4, expert_width = 1536, routed_scale = 1.8, first_dense = 1;
  }
};

void read_layers(const Node& given, LiteKeys& keys) {
  const Node* types = model::given(given, "mlp_layer_types");
  const Node* first = model::given(given, "first_k_dense_replace");
  if (types != nullptr) read_layer_types(*types, keys);
  if (first != nullptr && types == nullptr && first->as_integer() != keys.first_dense)
    model::refuse(*first, "transformers ignores first_k_dense_replace for this type, got " + first->written(),
                  "set mlp_layer_types, with dense or sparse for each layer");
  check_sparse_layers(given, keys, "mlp_layer_types");
}

model::ModelKeys<LiteKeys> lite_keys() {
  auto keys = corrected_keys<LiteKeys>("glm4_moe_lite");
  keys.group(
      {{{"first_k_dense_replace", "integer", "1", "1",
         "Number of layers, from the first, without experts. Use mlp_layer_types for other layers.", ""},
        mlp_layer_types_info()},
       read_layers,
       layer_types_entry});
  return keys;
}

decoder::Model lite_model(const LiteKeys& keys) {
  return latent_model(keys, true);
}

const decoder::Description<LiteKeys>& glm4_moe_lite() {
  static const decoder::Description<LiteKeys> kLite = {.model_type = "glm4_moe_lite",
                                                       .architecture = "Glm4MoeLiteForCausalLM",
                                                       .keys = lite_keys(),
                                                       .model = lite_model,
                                                       .benchmark = decoder::latent_benchmark_of_keys,
                                                       .signature = signature<glm4_moe_lite>};
  return kLite;
}

}  // namespace

void offer_glm4_moe_lite(Offer& plugin) {
  plugin.model<decoder::Family<glm4_moe_lite>>("glm4_moe_lite", glm4_moe_lite().keys);
}

}  // namespace heddle::llama

// OLMoE: norms over all heads of queries and of keys at once, and experts in every layer.
#include "families.h"
#include "keys.h"

namespace heddle::llama {
namespace {

struct OlmoeKeys : ExpertKeys {
  OlmoeKeys() {
    vocab_size = 50304, hidden_size = intermediate_size = 2048;
    num_hidden_layers = num_attention_heads = 16, max_position_embeddings = 4096;
    rms_norm_eps = 1e-5, pad_token_id = 1;
    experts = 64, experts_of_token = 8, normalised = false, router_aux_loss_coef = 0.01;
  }
};

void check_olmoe(const Node& given, const OlmoeKeys& keys) {
  if (keys.head_width() * keys.num_attention_heads != keys.hidden_size)
    model::refuse(*given.find("head_dim"),
                  "head_dim of olmoe must be hidden_size / num_attention_heads (" +
                      std::to_string(keys.hidden_size / keys.num_attention_heads) + "), got " +
                      std::to_string(keys.head_width()) + ", because transformers does not read head_dim",
                  "remove head_dim");
}

model::ModelKeys<OlmoeKeys> olmoe_keys() {
  auto keys = add_common<OlmoeKeys>("olmoe",
                                    {.head_dim = "No effect: it must be hidden_size / num_attention_heads."});
  add_attention_bias(keys);
  add_experts(keys, {.width = nullptr, .normalised = "norm_topk_prob"}, {"num_local_experts"}, true);
  keys.only("clip_qkv", Node(), "Clamping of q, k and v is not supported.");
  add_check<OlmoeKeys>(keys, check_olmoe);
  return keys;
}

decoder::Model olmoe_model(const OlmoeKeys& keys) {
  decoder::Attention attention = keys.attention();
  attention.qkv_bias = attention.output_bias = keys.attention_bias;
  attention.head_norm = decoder::Attention::HeadNorm::whole;
  return keys.model({attention, keys.mixture(), keys.norm()});
}

const decoder::Description<OlmoeKeys>& olmoe() {
  static const decoder::Description<OlmoeKeys> kOlmoe = {.model_type = "olmoe",
                                                         .architecture = "OlmoeForCausalLM",
                                                         .keys = olmoe_keys(),
                                                         .model = olmoe_model,
                                                         .signature = signature<olmoe>};
  return kOlmoe;
}

}  // namespace

void offer_olmoe(Offer& plugin) {
  plugin.model<decoder::Family<olmoe>>("olmoe", olmoe().keys);
}

}  // namespace heddle::llama

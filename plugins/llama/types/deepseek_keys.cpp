// The table of keys of the models with latent attention.
#include "deepseek_keys.h"

#include "../config/read_mixture.h"
#include "latent.h"

namespace heddle::llama {
namespace {

constexpr const char* kFirstDense = "deepseek_v2 deepseek_v3 kimi_k2 deepseek_v32 glm_moe_dsa";
constexpr const char* kCorrected = "deepseek_v3 kimi_k2 glm4_moe_lite deepseek_v32 glm_moe_dsa";

// Of the heads of attention.
const std::vector<Key> kAttentionKeys = {
    {{"q_lora_rank", "int or null", "1536", "0..2^28",
      "Width of the queries' latent; null or 0: queries are one product. GLM: 768.", ""}},
    {{"kv_lora_rank", "int", "512", "1..2^28", "Width of the latent of keys and values.", ""}},
    {{"qk_nope_head_dim", "int", "128", "1..2^28",
      "Elements of a query's and a key's head without a position. GLM: 192.", ""}},
    {{"qk_rope_head_dim", "int", "64", "even", "Elements with a position; all heads share those of keys.",
      ""}},
    {{"qk_head_dim", "int or null", "null", "", "No effect: the sum of the two.", ""}},
    {{"v_head_dim", "int", "128", "1..2^28", "Width of a head of values. GLM: 256.", ""}},
    {{"rope_interleave", "bool", "true", "", "Rotated pairs are neighbours; else halves.", ""}, kCorrected},
    {{"attention_bias", "bool", "false", "", "Biases of q_a, kv_a and o.", ""}}};

// Of routers, experts and layers.
const std::vector<Key> kRoutingKeys = {
    {{"n_shared_experts", "int or null", "2", "0..65536",
      "Experts of every token, as one of so many times the width. Others: 1.", ""}},
    {{"moe_intermediate_size", "int", "1407", "1..2^28", "Width of an expert. DeepSeek-V3: 2048; GLM: 1536.",
      ""}},
    {{"routed_scaling_factor", "float", "1.0", "",
      "Multiplies the weights of a token's experts. DeepSeek-V3: 2.5; GLM: 1.8.", ""}},
    {{"norm_topk_prob", "bool", "false", "",
      "The weights sum to 1, before they are scaled. DeepSeek-V2: only false; others: true.", ""}},
    {{"n_group", "int or null", "1", "divides the experts", "Groups of experts. DeepSeek-V3: 8.", ""}},
    {{"topk_group", "int or null", "1", "1..n_group",
      "A token's experts are in so many of the groups. DeepSeek-V3: 4.", ""}},
    {{"topk_method", "str", "greedy", "greedy, group_limited_greedy",
      "Whether DeepSeek-V2 limits groups, each worth its best expert; others: only noaux_tc, a group is "
      "worth its best two.",
      ""}},
    {{"scoring_func", "str", "softmax", "softmax", "Others: only sigmoid.", ""}},
    {{"first_k_dense_replace", "int", "0", "0..100000",
      "Layers before this one have no experts. DeepSeek-V3: 3; GLM: 1, or mlp_layer_types.", ""}},
    {{"moe_layer_freq", "int", "1", "1..100000",
      "Of the others, layers that this divides have experts, as in DeepSeek's own code. transformers has "
      "them in all.",
      ""},
     kFirstDense},
    {{"mlp_layer_types", "list or null", "null", "dense, sparse",
      "Of each layer; null: the first is dense, of the others those of first_k_dense_replace.", ""},
     "glm4_moe_lite deepseek_v32 glm_moe_dsa"},
    {{"gate_bias_update_factor", "float", "0.0", "0 or more",
      "After each step the correction bias of each expert moves by so much, up where it has fewer tokens "
      "than the mean, else down (NeMo AutoModel's field). 0: it stays.",
      ""},
     kCorrected},
    {{"aux_loss_alpha", "float", "0.001", "0 or more",
      "router_aux_loss_coef, in DeepSeek's spelling. It acts where router_aux_loss_type is given.", ""}},
    {{"seq_aux", "bool", "true", "", "No effect, as in transformers: router_aux_loss_type chooses the loss.",
      ""}},
    {{"ep_size", "int", "1", "", "No effect: distributed.ep_size splits experts.", ""}},
    {{"num_nextn_predict_layers", "int", "1", "",
      "No effect: layers of multi-token prediction are not trained, and their tensors are not read.", ""}},
    {{"num_mtp_layers", "int", "1", "", "The newer name of num_nextn_predict_layers.", ""}}};

}  // namespace

std::vector<Key> keys_of_latent() {
  std::vector<Key> keys = kAttentionKeys;
  add_expert_keys(keys, "64", {"n_routed_experts", "num_experts", "num_local_experts"});
  keys.insert(keys.end(), kRoutingKeys.begin(), kRoutingKeys.end());
  add_balance_keys(keys);
  add_indexer_keys(keys);
  return keys;
}

}  // namespace heddle::llama

// Table of keys of the models with latent attention.
#include "deepseek_keys.h"

#include "../config/read_mixture.h"
#include "latent.h"

namespace heddle::llama {
namespace {

constexpr const char* kFirstDense = "deepseek_v2 deepseek_v3 kimi_k2 deepseek_v32 glm_moe_dsa";
constexpr const char* kCorrected = "deepseek_v3 kimi_k2 glm4_moe_lite deepseek_v32 glm_moe_dsa";

// Keys of attention heads.
const std::vector<Key> kAttentionKeys = {
    {{"q_lora_rank", "int or null", "1536", "0..2^28",
      "Rank of the low-rank query projection. null or 0: a single full-rank projection. GLM: 768.", ""}},
    {{"kv_lora_rank", "int", "512", "1..2^28", "Rank of the latent of keys and values.", ""}},
    {{"qk_nope_head_dim", "int", "128", "1..2^28",
      "Width of the unrotated part of a query or key head. GLM: 192.", ""}},
    {{"qk_rope_head_dim", "int", "64", "even",
      "Width of the rotated part of a head. All heads share that part of keys.", ""}},
    {{"qk_head_dim", "int or null", "null", "", "Ignored: always qk_nope_head_dim + qk_rope_head_dim.", ""}},
    {{"v_head_dim", "int", "128", "1..2^28", "Width of a value head. GLM: 256.", ""}},
    {{"rope_interleave", "bool", "true", "", "Rotate neighboring pairs. false: rotate halves.", ""},
     kCorrected},
    {{"attention_bias", "bool", "false", "", "Whether q_a, kv_a and o have biases.", ""}}};

// Keys of routers, experts and layers.
const std::vector<Key> kRoutingKeys = {
    {{"n_shared_experts", "int or null", "2", "0..65536",
      "Number of shared experts, computed as one expert of that multiple of the width. Other types: 1.", ""}},
    {{"moe_intermediate_size", "int", "1407", "1..2^28", "Width of an expert. DeepSeek-V3: 2048. GLM: 1536.",
      ""}},
    {{"routed_scaling_factor", "float", "1.0", "",
      "Scale of the routing weights of the selected experts. DeepSeek-V3: 2.5. GLM: 1.8.", ""}},
    {{"norm_topk_prob", "bool", "false", "",
      "Normalize the routing weights to sum to 1 before scaling. DeepSeek-V2: only false. Other types: true.",
      ""}},
    {{"n_group", "int or null", "1", "divides the experts", "Number of expert groups. DeepSeek-V3: 8.", ""}},
    {{"topk_group", "int or null", "1", "1..n_group",
      "Number of groups from which the experts of a token are selected. DeepSeek-V3: 4.", ""}},
    {{"topk_method", "str", "greedy", "greedy, group_limited_greedy",
      "Group selection of DeepSeek-V2: group_limited_greedy scores each group by its best expert. Other "
      "types: only noaux_tc, which scores each group by its best two experts.",
      ""}},
    {{"scoring_func", "str", "softmax", "softmax",
      "Function that converts router logits to scores. Other types: only sigmoid.", ""}},
    {{"first_k_dense_replace", "int", "0", "0..100000",
      "Number of layers, from the first, without experts. DeepSeek-V3: 3. GLM: 1, or use mlp_layer_types.",
      ""}},
    {{"moe_layer_freq", "int", "1", "1..100000",
      "From layer first_k_dense_replace on, layers whose index is a multiple of this have experts, as in "
      "DeepSeek's own code. transformers uses experts in all of them.",
      ""},
     kFirstDense},
    {{"mlp_layer_types", "list or null", "null", "dense, sparse",
      "MLP type of each layer. null: derived from first_k_dense_replace. The first layer is dense.", ""},
     "glm4_moe_lite deepseek_v32 glm_moe_dsa"},
    {{"gate_bias_update_factor", "float", "0.0", "0 or more",
      "Change of each expert's correction bias after a step: up if the expert got fewer tokens than the "
      "mean, else down (NeMo AutoModel's field). 0: no change.",
      ""},
     kCorrected},
    {{"aux_loss_alpha", "float", "0.001", "0 or more",
      "DeepSeek's spelling of router_aux_loss_coef. Used if router_aux_loss_type is set.", ""}},
    {{"seq_aux", "bool", "true", "", "Ignored, as in transformers: router_aux_loss_type selects the loss.",
      ""}},
    {{"ep_size", "int", "1", "", "Ignored: distributed.ep_size splits experts.", ""}},
    {{"num_nextn_predict_layers", "int", "1", "",
      "Ignored: multi-token prediction layers are not trained, and their tensors are not read.", ""}},
    {{"num_mtp_layers", "int", "1", "", "Newer name of num_nextn_predict_layers.", ""}}};

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

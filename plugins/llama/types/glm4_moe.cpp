// GLM-4.5: partial rotation, dense layers first, shared experts, a sigmoid router.
#include <nlohmann/json.hpp>

#include "../config/read_mixture.h"
#include "heddle/decoder/benchmark.h"
#include "heddle/model/config_keys.h"
#include "sigmoid.h"

namespace heddle::llama {

void set_sigmoid_router(Mixture& mixture) {
  mixture.score = model::RouterRule::Score::sigmoid;
  mixture.normalise = mixture.correction = true;
  mixture.group_best = 2;
  mixture.shared_gate = false;
}

void read_sigmoid_router(const Node& keys, Mixture& mixture) {
  mixture.correction_rate = not_negative(keys, "gate_bias_update_factor", 0);
  read_balance(keys, mixture);
  if (model::given(keys, "router_aux_loss_type") == nullptr)
    mixture.balance.form = model::BalanceLoss::Form::none;
}

void write_sigmoid_router(const Mixture& mixture, nlohmann::ordered_json& out) {
  write_balance(mixture, out);
  out["output_router_logits"] = false;
  if (mixture.correction_rate != 0) out["gate_bias_update_factor"] = mixture.correction_rate;
}

namespace {

void set_glm4_moe(ModelConfig& config) {
  config.vocab_size = 151552, config.intermediate_size = 10944;
  config.num_hidden_layers = 46, config.num_attention_heads = 96, config.num_key_value_heads = 8;
  config.max_position_embeddings = 131072, config.rms_norm_eps = 1e-5;
  config.partial_rotary_factor = 0.5;
  Mixture& mixture = config.mixture;
  set_sigmoid_router(mixture);
  mixture.router_in_fp32 = true;
  mixture.experts = 128, mixture.top_k = 8, mixture.width = 1408, mixture.first_sparse = 1;
  mixture.shared_width = 1;  // in experts, until their width is known
}

void read_glm4_moe(const Node& keys, ModelConfig& config) {
  Mixture& mixture = config.mixture;
  config.qkv_bias = model::boolean_or(keys, "attention_bias", false);
  config.qk_norm = model::boolean_or(keys, "use_qk_norm", false);
  read_experts(keys, config);
  mixture.width = model::size_or(keys, "moe_intermediate_size", mixture.width);
  mixture.shared_width = mixture.width * count_or(keys, "n_shared_experts", 1, 65536);
  mixture.scale = model::real_or(keys, "routed_scaling_factor", 1);
  mixture.normalise = model::boolean_or(keys, "norm_topk_prob", true);
  mixture.first_sparse = count_or(keys, "first_k_dense_replace", mixture.first_sparse, model::kMostLayers);
  check_layers(keys, config, "first_k_dense_replace and num_hidden_layers");
  read_groups(keys, mixture);
  read_sigmoid_router(keys, mixture);
}

void write_glm4_moe(const ModelConfig& config, nlohmann::ordered_json& out) {
  const Mixture& mixture = config.mixture;
  out["attention_bias"] = config.qkv_bias;
  out["use_qk_norm"] = config.qk_norm;
  out["n_routed_experts"] = mixture.experts;
  out["moe_intermediate_size"] = mixture.width;
  out["n_shared_experts"] = mixture.shared_width / mixture.width;
  out["routed_scaling_factor"] = mixture.scale;
  out["norm_topk_prob"] = mixture.normalise;
  out["first_k_dense_replace"] = mixture.first_sparse;
  out["n_group"] = mixture.groups;
  out["topk_group"] = mixture.top_groups;
  out["num_nextn_predict_layers"] = 0;
  write_sigmoid_router(mixture, out);
}

// Counts dense layers first, and shared experts in the other layers.
double glm4_moe_benchmark(const BenchmarkSizes& m) {
  const double dense = m.of("first_k_dense_replace", 0), shared = m.of("n_shared_experts", 0);
  return m.layers * m.grouped_attention() + dense * m.gated(m.f) +
         (m.layers - dense) * m.gated(m.expert_width() * (shared + m.chosen(1))) + m.logits();
}

constexpr const char *kGlm = "glm4_moe", *kBoth = "glm4_moe bailing_moe";

std::vector<Key> keys_of_sigmoid() {
  std::vector<Key> keys = {
      {{"attention_bias", "bool", "false", "", "Whether q, k and v have biases.", ""}, kGlm},
      {{"use_qk_norm", "bool", "false", "", "Normalize each head of queries and keys. Ling: true.", ""},
       kBoth},
      {{"moe_intermediate_size", "int", "1408", "1..2^28", "Width of an expert. Ling: 512.", ""}, kBoth},
      {{"n_shared_experts", "int or null", "1", "0..65536",
        "Number of shared experts, computed as one expert of that multiple of the width.", ""},
       kGlm},
      {{"routed_scaling_factor", "float", "1.0", "", "Scale of the routing weights of the selected experts.",
        ""},
       kBoth},
      {{"norm_topk_prob", "bool", "true", "",
        "Normalize the routing weights to sum to 1 before scaling. Ling: only true.", ""},
       kBoth},
      {{"first_k_dense_replace", "int", "1", "0..100000",
        "Number of layers, from the first, without experts.", ""},
       kBoth},
      {{"n_group", "int or null", "1", "divides the experts", "Number of expert groups. Ling: 8.", ""},
       kBoth},
      {{"topk_group", "int or null", "1", "1..n_group",
        "Number of groups from which the experts of a token are selected. Ling: 4.", ""},
       kBoth},
      {{"gate_bias_update_factor", "float", "0.0", "0 or more",
        "Change of each expert's correction bias after a step, towards balanced loads. 0: no change.", ""}},
      {{"num_nextn_predict_layers", "int", "1", "",
        "Ignored: multi-token prediction layers are not trained, and their tensors are not read.", ""},
       kBoth},
      {{"num_mtp_layers", "int", "1", "", "Newer name of num_nextn_predict_layers.", ""}, kGlm}};
  add_expert_keys(keys, "128", {"n_routed_experts", "num_experts", "num_local_experts"});
  add_minimax_m2_keys(keys);
  add_bailing_moe_keys(keys);
  add_balance_keys(keys);
  return keys;
}

}  // namespace

ModelType glm4_moe_type() {
  ModelType type{"glm4_moe", "Glm4MoeForCausalLM", set_glm4_moe, read_glm4_moe, write_glm4_moe};
  type.partial_rotary = true;
  type.benchmark = glm4_moe_benchmark;
  return type;
}

const ModelGroup& sigmoid_models() {
  static const ModelGroup kGroup = {{glm4_moe_type(), minimax_m2_type(), bailing_moe_type()},
                                    keys_of_sigmoid()};
  return kGroup;
}

}  // namespace heddle::llama

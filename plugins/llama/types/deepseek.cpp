// DeepSeek-V2, DeepSeek-V3, Kimi-K2 and GLM-4.7-Flash: latent attention, and experts selected by groups with
// a correction bias.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "../config/keys.h"
#include "../config/model_type.h"
#include "../config/read_mixture.h"
#include "heddle/decoder/benchmark.h"
#include "heddle/model/config_keys.h"
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

std::vector<Key> keys_of_latent() {
  std::vector<Key> keys = kAttentionKeys;
  add_expert_keys(keys, "64", {"n_routed_experts", "num_experts", "num_local_experts"});
  keys.insert(keys.end(), kRoutingKeys.begin(), kRoutingKeys.end());
  add_balance_keys(keys);
  add_indexer_keys(keys);
  return keys;
}

using model::given;
using model::refuse;
using model::size_or;
using model::text_or;
using Rule = model::RouterRule;

void set_deepseek_v2(ModelConfig& config) {
  set_latent(config);
  config.vocab_size = 102400;
  Mixture& mixture = config.mixture;
  mixture.experts = 64, mixture.top_k = 0, mixture.width = 1407, mixture.shared_width = 2;
}

void set_glm4_moe_lite(ModelConfig& config) {
  set_latent(config);
  set_corrected(config);
  config.latent = {512, 768, 192, 64, 256, true};
  config.vocab_size = 154880, config.hidden_size = 2048, config.intermediate_size = 10240;
  config.num_hidden_layers = 47, config.num_attention_heads = 20;
  config.max_position_embeddings = 202752, config.rms_norm_eps = 1e-5;
  Mixture& mixture = config.mixture;
  mixture.experts = 64, mixture.top_k = 4, mixture.width = 1536, mixture.shared_width = 1;
  mixture.scale = 1.8, mixture.first_sparse = 1;
}

void read_attention(const Node& keys, ModelConfig& config) {
  Latent& latent = config.latent;
  latent.rank = size_or(keys, "kv_lora_rank", latent.rank);
  latent.query_rank = count_or(keys, "q_lora_rank", latent.query_rank, model::kLargestSize);
  latent.plain = size_or(keys, "qk_nope_head_dim", latent.plain);
  latent.rotary = size_or(keys, "qk_rope_head_dim", latent.rotary);
  latent.value = size_or(keys, "v_head_dim", latent.value);
  if (config.model_type != "deepseek_v2")
    latent.interleaved = model::boolean_or(keys, "rope_interleave", true);
  for (const char* key : {"rope_parameters", "rope_scaling"})
    if (const Node* scaling = given(keys, key); scaling != nullptr && scaling->is_map())
      if (const Node* all = given(*scaling, "mscale_all_dim");
          all != nullptr && config.rope_scaling.kind != RotaryScaling::Kind::yarn)
        refuse(*all, "mscale_all_dim is built for rope type yarn only", "remove the key");
  if (latent.rotary % 2 != 0)
    refuse(keys, "the rotary embedding needs an even qk_rope_head_dim, got " + std::to_string(latent.rotary));
  if (config.num_attention_heads > model::kLargestSize / (latent.plain + latent.rotary + latent.value))
    refuse(keys, "num_attention_heads " + std::to_string(config.num_attention_heads) +
                     " of these widths are more than " + std::to_string(model::kLargestSize));
  if (config.num_key_value_heads != config.num_attention_heads)
    refuse(*keys.find("num_key_value_heads"),
           "num_key_value_heads must equal num_attention_heads in latent attention, " +
               std::to_string(config.num_attention_heads) + ", got " +
               std::to_string(config.num_key_value_heads),
           "set num_key_value_heads: null");
  config.head_dim = latent.rotary;
  config.qkv_bias = config.output_bias = model::boolean_or(keys, "attention_bias", false);
}

void read_layer_types(const Node& keys, ModelConfig& config) {
  const Mixture& mixture = config.mixture;
  const Node* types = given(keys, "mlp_layer_types");
  if (types != nullptr) read_type_list(*types, config);
  const Node* first = given(keys, "first_k_dense_replace");
  if (first != nullptr && types == nullptr && first->as_integer() != mixture.first_sparse)
    refuse(*first, "transformers ignores first_k_dense_replace for this type, got " + first->written(),
           "set mlp_layer_types, with dense or sparse for each layer");
  check_layers(keys, config, "mlp_layer_types");
}

void read_routing(const Node& keys, ModelConfig& config) {
  Mixture& mixture = config.mixture;
  if (mixture.top_k == 0 && given(keys, "num_experts_per_tok") == nullptr)
    refuse(keys, "num_experts_per_tok is missing");
  mixture.top_k = std::max<int64_t>(mixture.top_k, 1);
  read_experts(keys, config);
  mixture.width = size_or(keys, "moe_intermediate_size", mixture.width);
  const int64_t shared = count_or(keys, "n_shared_experts", mixture.shared_width, 65536);
  mixture.shared_width = shared * mixture.width;
  mixture.scale = model::real_or(keys, "routed_scaling_factor", mixture.scale);
  mixture.balance.coefficient = not_negative(keys, "aux_loss_alpha", mixture.balance.coefficient);
  read_balance(keys, mixture);
  if (given(keys, "router_aux_loss_type") == nullptr) mixture.balance.form = model::BalanceLoss::Form::none;
}

void read_deepseek_v2(const Node& keys, ModelConfig& config) {
  check_heads_divide(keys, config);
  read_attention(keys, config);
  expect_text(keys, "scoring_func", "softmax", config.model_type);
  if (model::boolean_or(keys, "norm_topk_prob", false))
    refuse(*keys.find("norm_topk_prob"), "transformers does not normalize the routing weights of deepseek_v2",
           "set norm_topk_prob: false");
  read_routing(keys, config);
  const std::string method = text_or(keys, "topk_method", "greedy");
  if (method == "group_limited_greedy")
    read_groups(keys, config.mixture);
  else if (method != "greedy")
    refuse(*keys.find("topk_method"),
           "topk_method '" + method + "' is not built; known: greedy, group_limited_greedy");
  read_first_dense(keys, config);
}

void read_deepseek_v3(const Node& keys, ModelConfig& config) {
  read_corrected(keys, config);
  read_first_dense(keys, config);
}

void read_glm4_moe_lite(const Node& keys, ModelConfig& config) {
  read_corrected(keys, config);
  read_layer_types(keys, config);
}

void write_latent(const ModelConfig& config, nlohmann::ordered_json& out) {
  const Latent& latent = config.latent;
  out["kv_lora_rank"] = latent.rank;
  out["q_lora_rank"] = nullptr;
  if (latent.query_rank > 0) out["q_lora_rank"] = latent.query_rank;
  out["qk_nope_head_dim"] = latent.plain;
  out["qk_rope_head_dim"] = latent.rotary;
  out["v_head_dim"] = latent.value;
  out["attention_bias"] = config.qkv_bias;
  const Mixture& mixture = config.mixture;
  out["n_routed_experts"] = mixture.experts;
  out["n_shared_experts"] = mixture.shared_width / mixture.width;
  out["moe_intermediate_size"] = mixture.width;
  out["routed_scaling_factor"] = mixture.scale;
  out["norm_topk_prob"] = mixture.normalise;
  out["n_group"] = mixture.groups;
  out["topk_group"] = mixture.top_groups;
  write_balance(mixture, out);
  out["output_router_logits"] = false;
}

void write_first_dense(const Mixture& mixture, nlohmann::ordered_json& out) {
  out["first_k_dense_replace"] = mixture.first_sparse;
  out["moe_layer_freq"] = mixture.sparse_every;
}

void write_deepseek_v2(const ModelConfig& config, nlohmann::ordered_json& out) {
  write_latent(config, out);
  write_first_dense(config.mixture, out);
  out["scoring_func"] = "softmax";
  out["topk_method"] = config.mixture.groups > 1 ? "group_limited_greedy" : "greedy";
}

void write_deepseek_v3(const ModelConfig& config, nlohmann::ordered_json& out) {
  write_corrected(config, out);
  write_first_dense(config.mixture, out);
}

void write_glm4_moe_lite(const ModelConfig& config, nlohmann::ordered_json& out) {
  write_corrected(config, out);
  write_type_list(config, out);
}

// Counts one shared expert, whatever n_shared_experts is. A number in moe_layer_freq counts from the first
// layer.
double deepseek_v3_benchmark(const BenchmarkSizes& m) {
  const double frequency = m.of("moe_layer_freq", 0);
  if (frequency < 1) return decoder::latent_benchmark(m, 1, m.expert_layers());
  const auto each = static_cast<int64_t>(frequency), layers = static_cast<int64_t>(m.layers);
  return decoder::latent_benchmark(m, 1, static_cast<double>((layers + each - 1) / each));
}

ModelGroup group_of_latent() {
  ModelGroup group = {
      {{"deepseek_v2", "DeepseekV2ForCausalLM", set_deepseek_v2, read_deepseek_v2, write_deepseek_v2},
       {"deepseek_v3",
        "DeepseekV3ForCausalLM",
        set_deepseek_v3,
        read_deepseek_v3,
        write_deepseek_v3,
        {},
        false,
        deepseek_v3_benchmark,
        decoder::automodel_bias_update()},
       {"kimi_k2",
        "DeepseekV3ForCausalLM",
        set_deepseek_v3,
        read_deepseek_v3,
        write_deepseek_v3,
        {},
        false,
        decoder::latent_benchmark_of_keys,
        decoder::automodel_bias_update()},
       {"glm4_moe_lite",
        "Glm4MoeLiteForCausalLM",
        set_glm4_moe_lite,
        read_glm4_moe_lite,
        write_glm4_moe_lite,
        {},
        false,
        decoder::latent_benchmark_of_keys}},
      keys_of_latent()};
  for (ModelType& type : sparse_latent_types()) group.types.push_back(std::move(type));
  return group;
}

}  // namespace

void set_latent(ModelConfig& config) {
  config.latent = {512, 1536, 128, 64, 128, true};
  config.head_dim = config.latent.rotary;
  Mixture& mixture = config.mixture;
  mixture.shared_gate = false;
  mixture.router_in_fp32 = true;
}

void set_corrected(ModelConfig& config) {
  Mixture& mixture = config.mixture;
  mixture.score = Rule::Score::sigmoid;
  mixture.group_best = 2;
  mixture.normalise = mixture.correction = true;
}

void set_deepseek_v3(ModelConfig& config) {
  set_latent(config);
  set_corrected(config);
  config.vocab_size = 129280, config.hidden_size = 7168, config.intermediate_size = 18432;
  config.num_hidden_layers = 61, config.num_attention_heads = 128;
  config.max_position_embeddings = 4096;
  Mixture& mixture = config.mixture;
  mixture.experts = 256, mixture.top_k = 8, mixture.width = 2048, mixture.shared_width = 1;
  mixture.groups = 8, mixture.top_groups = 4, mixture.scale = 2.5, mixture.first_sparse = 3;
}

void read_first_dense(const Node& keys, ModelConfig& config) {
  Mixture& mixture = config.mixture;
  mixture.first_sparse = count_or(keys, "first_k_dense_replace", mixture.first_sparse, model::kMostLayers);
  mixture.sparse_every = size_or(keys, "moe_layer_freq", 1, model::kMostLayers);
  check_layers(keys, config, "first_k_dense_replace and moe_layer_freq");
}

void read_corrected(const Node& keys, ModelConfig& config) {
  read_attention(keys, config);
  expect_text(keys, "scoring_func", "sigmoid", config.model_type);
  expect_text(keys, "topk_method", "noaux_tc", config.model_type);
  config.mixture.normalise = model::boolean_or(keys, "norm_topk_prob", true);
  config.mixture.correction_rate = not_negative(keys, "gate_bias_update_factor", 0);
  read_routing(keys, config);
  read_groups(keys, config.mixture);
}

void read_type_list(const Node& types, ModelConfig& config) {
  Mixture& mixture = config.mixture;
  if (!types.is_list() || static_cast<int64_t>(types.size()) != config.num_hidden_layers)
    refuse(types, "expected a list of " + std::to_string(config.num_hidden_layers) +
                      " words, dense or sparse, one per layer, got " +
                      (types.is_list() ? std::to_string(types.size()) : types.written()));
  mixture.first_sparse = 0;
  int64_t layer = 0;
  for (const Node& type : types.items()) {
    if (type.as_text() != "dense" && type.as_text() != "sparse")
      refuse(type, "expected dense or sparse, got " + type.written());
    if (type.as_text() == "dense") mixture.dense_layers.push_back(layer);
    ++layer;
  }
}

void write_corrected(const ModelConfig& config, nlohmann::ordered_json& out) {
  write_latent(config, out);
  out["rope_interleave"] = config.latent.interleaved;
  out["scoring_func"] = "sigmoid";
  out["topk_method"] = "noaux_tc";
  if (config.mixture.correction_rate != 0) out["gate_bias_update_factor"] = config.mixture.correction_rate;
}

void write_type_list(const ModelConfig& config, nlohmann::ordered_json& out) {
  std::vector<std::string> types;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    types.push_back(config.mixture.sparse(layer) ? "sparse" : "dense");
  out["mlp_layer_types"] = types;
}

const ModelGroup& latent_models() {
  static const ModelGroup kGroup = group_of_latent();
  return kGroup;
}

}  // namespace heddle::llama

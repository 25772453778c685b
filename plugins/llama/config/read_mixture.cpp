// Reader of the keys of routers and experts.
#include "read_mixture.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "heddle/model/config_keys.h"

namespace heddle::llama {

bool Mixture::sparse(int64_t layer) const {
  return experts > 0 && layer >= first_sparse && layer % sparse_every == 0 &&
         (layer + 1) % sparse_step == 0 &&
         std::find(dense_layers.begin(), dense_layers.end(), layer) == dense_layers.end();
}

void add_expert_keys(std::vector<Key>& keys, const std::string& first_default,
                     const std::vector<std::string>& names) {
  const std::string& first = names.front();
  keys.push_back({{first, "int", first_default, "1..65536",
                   "Number of experts per layer. The default depends on the type.", ""}});
  for (size_t i = 1; i < names.size(); ++i)
    keys.push_back({{names[i], "int or null", "null", "1..65536", "Alias of " + first + ".", ""}});
}

void add_balance_keys(std::vector<Key>& keys) {
  const std::vector<FieldInfo> table = {
      {"num_experts_per_tok", "int", "2", "1..the experts",
       "Number of experts per token. The default depends on the type.", ""},
      {"output_router_logits", "bool", "false", "", "Train with the auxiliary loss.", ""},
      {"router_aux_loss_coef", "float", "0.001", "0 or more",
       "Coefficient of the auxiliary loss. OLMoE: 0.01.", ""},
      {"router_aux_loss_type", "str or null", "null", "none, layer, sequence, global, model",
       "Form of the auxiliary loss. null: model if output_router_logits, else none.", ""},
      {"router_z_loss_coef", "float", "0.0", "0 or more", "Coefficient of the router's z-loss.", ""},
      {"router_dtype", "str or null", "null", "float32",
       "Dtype of the router's projection. null: the model's dtype. DeepSeek, GLM and Ling always use "
       "float32.",
       ""},
      {"fake_balanced_gate", "bool", "false", "", "Assign tokens to experts in turn, for benchmarks.", ""}};
  for (const FieldInfo& info : table) keys.push_back({info});
}

namespace {

using Form = model::BalanceLoss::Form;

constexpr int64_t kMostExperts = 65536;

void read_dense_layers(const Node& layers, ModelConfig& config) {
  if (!layers.is_list()) model::refuse(layers, "expected a list of layers, got " + layers.written());
  for (const Node& layer : layers.items()) {
    const int64_t index = layer.as_integer();
    if (index < 0 || index >= config.num_hidden_layers)
      model::refuse(layer, "expected a layer from 0 to " + std::to_string(config.num_hidden_layers - 1) +
                               ", got " + std::to_string(index));
    config.mixture.dense_layers.push_back(index);
  }
}

void read_losses(const Node& keys, Mixture& mixture) {
  mixture.balance.coefficient = not_negative(keys, "router_aux_loss_coef", mixture.balance.coefficient);
  mixture.z_loss = not_negative(keys, "router_z_loss_coef", 0);
  const std::string form =
      model::text_or(keys, "router_aux_loss_type",
                     model::boolean_or(keys, "output_router_logits", false) ? "model" : "none");
  if (form == "layer")
    mixture.balance.form = Form::layer;
  else if (form == "sequence")
    mixture.balance.form = Form::sequence;
  else if (form == "global")
    mixture.balance.form = Form::global;
  else if (form == "model")
    mixture.balance.form = Form::model;
  else if (form != "none")
    model::refuse(*keys.find("router_aux_loss_type"),
                  "unknown auxiliary loss '" + form + "'; known: none, layer, sequence, global, model");
}

void read_router(const Node& keys, Mixture& mixture) {
  mixture.in_turn = model::boolean_or(keys, "fake_balanced_gate", false);
  const std::string dtype = model::text_or(keys, "router_dtype", "");
  if (dtype.empty()) return;
  mixture.router_in_fp32 = dtype == "float32" || dtype == "fp32";
  if (!mixture.router_in_fp32)
    model::refuse(*keys.find("router_dtype"), "expected float32 or null, got '" + dtype + "'");
}

const char* form_name(Form form) {
  return form == Form::layer      ? "layer"
         : form == Form::sequence ? "sequence"
         : form == Form::global   ? "global"
         : form == Form::model    ? "model"
                                  : "none";
}

}  // namespace

double not_negative(const Node& keys, const char* key, double otherwise) {
  const Node* node = model::given(keys, key);
  if (node == nullptr) return otherwise;
  if (!(node->as_real() >= 0) || !std::isfinite(node->as_real()))
    model::refuse(*node, "expected a number of at least 0, got " + node->written());
  return node->as_real();
}

void refuse_jitter(const Node& keys) {
  if (const Node* noise = model::given(keys, "router_jitter_noise");
      noise != nullptr && noise->as_real() != 0)
    model::refuse(*noise, "router jitter is not built for this model, got " + noise->written(),
                  "set router_jitter_noise: 0");
}

void check_layers(const Node& keys, const ModelConfig& config, const std::string& of) {
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    if (config.mixture.sparse(layer)) return;
  model::refuse(keys, of + " leave no layer with experts");
}

void read_experts(const Node& keys, ModelConfig& config) {
  Mixture& mixture = config.mixture;
  const Node* first = nullptr;
  for (const char* key : {"n_routed_experts", "num_experts", "num_local_experts"}) {
    const Node* node = model::given(keys, key);
    if (node == nullptr) continue;
    const int64_t count = model::size_or(keys, key, 0, kMostExperts);
    if (first != nullptr && count != mixture.experts)
      model::refuse(*node,
                    "two names of the number of experts differ: " + std::to_string(mixture.experts) +
                        " and " + std::to_string(count),
                    "set only one of them");
    first = node;
    mixture.experts = count;
  }
  mixture.top_k = model::size_or(keys, "num_experts_per_tok", mixture.top_k);
  if (mixture.top_k > mixture.experts)
    model::refuse(keys, "num_experts_per_tok " + std::to_string(mixture.top_k) + " is more than the " +
                            std::to_string(mixture.experts) + " experts");
}

void read_sparse_layers(const Node& keys, ModelConfig& config) {
  config.mixture.sparse_step = model::size_or(keys, "decoder_sparse_step", 1);
  if (const Node* dense = model::given(keys, "mlp_only_layers")) read_dense_layers(*dense, config);
  check_layers(keys, config, "decoder_sparse_step and mlp_only_layers");
}

int64_t count_or(const Node& keys, const char* key, int64_t otherwise, int64_t most) {
  const Node* node = keys.find(key);
  if (node == nullptr) return otherwise;
  const int64_t count = node->is_null() ? 0 : node->as_integer();
  if (count < 0 || count > most)
    model::refuse(*node,
                  "expected a number from 0 to " + std::to_string(most) + ", got " + std::to_string(count));
  return count;
}

void expect_text(const Node& keys, const char* key, const std::string& only, const std::string& type) {
  const Node* node = model::given(keys, key);
  if (node != nullptr && node->as_text() != only)
    model::refuse(*node, type + " routes with " + key + " " + only + ", got " + node->written());
}

void read_groups(const Node& keys, Mixture& mixture, const std::string& experts) {
  mixture.groups = model::size_or(keys, "n_group", mixture.groups);
  mixture.top_groups = model::size_or(keys, "topk_group", std::min(mixture.top_groups, mixture.groups));
  const auto at = [&](const char* key) -> const Node& {
    const Node* node = model::given(keys, key);
    return node == nullptr ? keys : *node;
  };
  if (mixture.experts % mixture.groups != 0)
    model::refuse(at("n_group"), experts + " " + std::to_string(mixture.experts) +
                                     " is not a multiple of n_group " + std::to_string(mixture.groups));
  if (mixture.top_groups > mixture.groups)
    model::refuse(at("topk_group"), "topk_group " + std::to_string(mixture.top_groups) +
                                        " is more than n_group " + std::to_string(mixture.groups));
  const int64_t each = mixture.experts / mixture.groups;
  if (mixture.top_k > each * mixture.top_groups)
    model::refuse(at("num_experts_per_tok"),
                  "num_experts_per_tok " + std::to_string(mixture.top_k) + " is more than the " +
                      std::to_string(each * mixture.top_groups) + " experts of topk_group " +
                      std::to_string(mixture.top_groups) + " groups with " + std::to_string(each) + " each");
  if (mixture.groups > 1 && mixture.group_best > each)
    model::refuse(at("n_group"), "a group is scored by its best " + std::to_string(mixture.group_best) +
                                     " experts, but with n_group " + std::to_string(mixture.groups) +
                                     " a group has only " + std::to_string(each));
}

void read_balance(const Node& keys, Mixture& mixture) {
  read_losses(keys, mixture);
  read_router(keys, mixture);
}

void write_balance(const Mixture& mixture, nlohmann::ordered_json& out) {
  out["num_experts_per_tok"] = mixture.top_k;
  out["output_router_logits"] = mixture.balance.form == Form::model;
  out["router_aux_loss_coef"] = mixture.balance.coefficient;
  out["router_aux_loss_type"] = form_name(mixture.balance.form);
  if (mixture.z_loss != 0) out["router_z_loss_coef"] = mixture.z_loss;
  if (mixture.router_in_fp32) out["router_dtype"] = "float32";
  if (mixture.in_turn) out["fake_balanced_gate"] = true;
}

}  // namespace heddle::llama

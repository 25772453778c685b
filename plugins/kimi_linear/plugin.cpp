// Kimi Linear: Kimi Delta Attention, latent attention without rotation, and experts.
#include "heddle/sdk.h"
#include "kimi_k3.h"

namespace heddle::kimi_linear {
namespace {

void add_attention_keys(model::ModelKeys<Keys>& keys) {
  add_latent_keys(keys);
  keys.field("attention_bias", &Keys::attention_bias, "Whether q_a, kv_a and o have biases.");
  add_delta_keys(keys);
  keys.field("layer_types", &Keys::layer_types,
             "Type of each layer: linear_attention or full_attention. null: derived from linear_attn_config, "
             "else full attention in layers 4, 8, ..., counted from 0.")
      .rule(complaint_of_attention)
      .only("hidden_act", Node::text("silu"), "Activation function of MLPs, experts and convolutions.")
      .only("attention_dropout", Node::real(0), "Attention dropout is not supported.")
      .only("mla_use_nope", Node::boolean(true), "Latent attention with rotation is not supported.")
      .only("kda_use_qk_l2norm_in_kernel", Node::boolean(true), "Queries and keys are always L2-normalized.");
}

void add_expert_keys(model::ModelKeys<Keys>& keys) {
  keys.field("mlp_layer_types", &Keys::mlp_layer_types,
             "MLP type of each layer: dense or sparse (experts). null: derived from first_k_dense_replace.");
  add_mixture_keys(keys);
  keys.then(fill)
      .only("moe_router_activation_func", Node::text("sigmoid"),
            "Function that converts router logits to scores.")
      .only("moe_layer_freq", Node::integer(1), "Not read by transformers.")
      .only("num_nextn_predict_layers", Node::integer(0),
            "Multi-token prediction layers are not built for this model.");
}

model::ModelKeys<Keys> keys() {
  auto keys = decoder::common_keys<Keys>({.latent = true});
  decoder::add_rms_norm(keys);
  add_attention_keys(keys);
  add_expert_keys(keys);
  keys.group(linear_attention()).group(other_names());
  for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters"})
    keys.unused(key, "Attention has no rotation.");
  for (const char* key : {"kda_mode", "kda_unpad_inputs", "kda_use_fused_gate"})
    keys.unused(key, "No effect on results.");
  keys.unused("head_dim", "Head sizes are set by the keys above.")
      .unused("qk_head_dim", "The sum of qk_nope_head_dim and qk_rope_head_dim.")
      .unused("use_grouped_topk", "Only num_expert_group is used.")
      .unused("router_dtype", "The router always computes in fp32.")
      .unused("output_router_logits", "There is no auxiliary loss, as in transformers.");
  return keys;
}

// Names in published files. transformers writes the MLPs of dense layers under the name of the experts.
decoder::Files files_of(const Keys& keys) {
  decoder::ExpertFiles experts;
  experts.layer = "block_sparse_moe";
  experts.gate = "w1", experts.up = "w3", experts.down = "w2";
  decoder::Files files;
  files.experts(experts)
      .widened("linear_attn.A_log", 2, 1)
      .renamed("linear_attn", "self_attn")
      .renamed("mlp.shared_experts", "block_sparse_moe.shared_experts");
  for (int64_t layer = 0; layer < keys.num_hidden_layers; ++layer) {
    const std::string place = "model.layers." + std::to_string(layer) + ".";
    if (!has_experts(keys, layer)) files.otherwise(place + "mlp.", place + "block_sparse_moe.");
  }
  return files;
}

const decoder::Description<Keys>& kimi_linear() {
  static const decoder::Description<Keys> kKimi = {
      "kimi_linear", "KimiLinearForCausalLM", keys(), model_of, {}, files_of};
  return kKimi;
}

// The text model of Kimi K3 has the model_type of Kimi Linear but a different architecture.
class ByArchitecture : public IModelFamily {
 public:
  std::unique_ptr<ModelSpec> read(const Node& keys, UnknownKeys unknown) const override {
    if (is_kimi_k3(keys)) return read_kimi_k3(keys, unknown);
    if (const Node* act = model::given(keys, "hidden_act"); act != nullptr && *act == Node::text("situ"))
      model::refuse(
          *act, "hidden_act 'situ' belongs to Kimi K3, but architectures does not contain KimiK3ForCausalLM",
          "set model_type: kimi_k3, or architectures: [KimiK3ForCausalLM]");
    return decoder::Family<kimi_linear>().read(keys, unknown);
  }
};

}  // namespace
}  // namespace heddle::kimi_linear

HEDDLE_PLUGIN("kimi_linear", "0.1.0", "model kimi_linear", "model kimi_k3") {
  using namespace heddle::kimi_linear;
  plugin.model<ByArchitecture>("kimi_linear", kimi_linear().keys);
  offer_kimi_k3(plugin, kimi_linear().keys.table());
}

// Kimi K3: keys and files of its text model, also inside a model of text and images.
#include "kimi_k3.h"

#include <algorithm>
#include <utility>

#include "heddle/decoder/text_family.h"

namespace heddle::kimi_linear {
namespace {

constexpr const char* kArchitecture = "KimiK3ForCausalLM";

void add_numbers(model::ModelKeys<K3Keys>& keys) {
  keys.field("hidden_act", &K3Keys::hidden_act, "Activation function of MLPs and experts.", OneOf{{"situ"}})
      .field("activation_situ_beta", &K3Keys::activation_situ_beta,
             "Bound of the gate: beta * tanh(gate / beta) * sigmoid(gate). null or 0: 1.")
      .field("activation_situ_linear_beta", &K3Keys::activation_situ_linear_beta,
             "Bound of the values that the gate multiplies: beta * tanh(value / beta). null: no bound.")
      .field("attn_res_block_size", &K3Keys::attn_res_block_size,
             "Number of layers per residual block. The input of each mixer, each MLP and the head is a "
             "weighted sum of all block inputs and the current block's residual. null: plain residuals.",
             Range<int64_t>{1, model::kMostLayers})
      .field("mla_use_output_gate", &K3Keys::mla_use_output_gate,
             "Multiply the output of latent attention by a sigmoid gate.")
      .field("moe_layer_freq", &K3Keys::moe_layer_freq,
             "From layer first_k_dense_replace on, layers whose index (from 0) is a multiple of it have "
             "experts.",
             Range<int64_t>{1, model::kMostLayers})
      .field("routed_expert_hidden_size", &K3Keys::routed_expert_hidden_size,
             "Width of the latent space in which experts compute.", decoder::kSize)
      .field("latent_moe_use_norm", &K3Keys::latent_moe_use_norm,
             "Normalize the sum of the experts in the latent space.")
      .field("moe_router_activation_func", &K3Keys::moe_router_activation_func,
             "Function that converts router logits to scores.", OneOf{{"sigmoid", "softmax"}});
}

void add_refused(model::ModelKeys<K3Keys>& keys) {
  keys.only("attention_dropout", Node::real(0), "Attention dropout is not supported.")
      .only("mla_use_nope", Node::boolean(true), "Latent attention with rotation is not supported.")
      .only("kda_use_qk_l2norm_in_kernel", Node::boolean(true), "Queries and keys are always L2-normalized.")
      .only("topk_method", Node::text("noaux_tc"), "A correction bias selects experts.")
      .only("num_nextn_predict_layers", Node::integer(0),
            "Multi-token prediction layers are not built for this model.");
  for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters"})
    keys.unused(key, "Attention has no rotation.");
  for (const char* key : {"kda_mode", "kda_unpad_inputs", "kda_use_fused_gate"})
    keys.unused(key, "No effect on results.");
  keys.unused("head_dim", "Head sizes are set by the keys above.")
      .unused("use_grouped_topk", "Only num_expert_group is used.")
      .unused("model_max_length", "max_position_embeddings is used instead.");
}

model::ModelKeys<K3Keys> keys_of_k3() {
  auto keys = decoder::common_keys<K3Keys>({.latent = true});
  decoder::add_rms_norm(keys);
  add_latent_keys(keys);
  add_delta_keys(keys);
  add_mixture_keys(keys);
  add_numbers(keys);
  add_refused(keys);
  keys.then(fill_k3).rule(complaint_of_k3).group(k3_attention());
  return keys;
}

// Names in the published files of the whole model.
decoder::Files files() {
  decoder::ExpertFiles experts;
  experts.layer = "block_sparse_moe";
  experts.gate = "w1", experts.up = "w3", experts.down = "w2";
  decoder::Files files;
  files.experts(experts)
      .renamed("linear_attn", "self_attn")
      .renamed("mlp.shared_experts", "block_sparse_moe.shared_experts")
      .renamed("mlp.fc1_latent_proj", "block_sparse_moe.routed_expert_down_proj")
      .renamed("mlp.fc2_latent_proj", "block_sparse_moe.routed_expert_up_proj")
      .renamed("mlp.latent_norm", "block_sparse_moe.routed_expert_norm")
      .renamed("attn_res.norm", "self_attention_res_norm")
      .renamed("attn_res.proj", "self_attention_res_proj")
      .renamed("mlp_res.norm", "mlp_res_norm")
      .renamed("mlp_res.proj", "mlp_res_proj")
      .renamed("output_res.norm", "output_attn_res_norm")
      .renamed("output_res.proj", "output_attn_res_proj")
      .renamed("model", "language_model.model")
      .renamed("lm_head", "language_model.lm_head")
      .otherwise("language_model.", "")
      .ignored_module("vision_tower")
      .ignored_module("mm_projector");
  return files;
}

const decoder::Description<K3Keys>& kimi_k3_text() {
  static const decoder::Description<K3Keys> kText = {"kimi_linear", kArchitecture, keys_of_k3(), model_of_k3,
                                                     files()};
  return kText;
}

const std::vector<std::string>& text_types() {
  static const std::vector<std::string> kTypes = {kimi_k3_text().model_type};
  return kTypes;
}

// Returns text_config, then the keys of text_config that Kimi Linear does not have or gives another default
// or meaning.
std::vector<FieldInfo> table_of_whole(const std::vector<FieldInfo>& of_kimi_linear) {
  std::vector<FieldInfo> out = decoder::text_table(text_types());
  for (FieldInfo& field : out)
    if (field.key == "tie_word_embeddings") field.help = "true is refused.";
  for (FieldInfo& field : kimi_k3_text().keys.table()) {
    if (field.key == "tie_word_embeddings") continue;
    const auto same = [&](const FieldInfo& other) {
      return other.key == field.key && other.default_value == field.default_value &&
             other.range == field.range && other.help == field.help;
    };
    if (std::any_of(of_kimi_linear.begin(), of_kimi_linear.end(), same)) continue;
    field.help = "Only read in text_config: " + field.help;
    out.push_back(std::move(field));
  }
  return out;
}

// Reads the keys of the text model from text_config, or from the top level without text_config.
class KimiK3 : public IModelFamily {
 public:
  std::unique_ptr<ModelSpec> read(const Node& keys, UnknownKeys unknown) const override {
    if (model::given(keys, "text_config") == nullptr) return read_kimi_k3(keys, unknown);
    if (unknown == UnknownKeys::refused) model::check_keys(keys, decoder::text_table(text_types()), unknown);
    const Node text = decoder::text_keys(keys);
    const std::string& type = text_types().front();
    if (model::text_or(text, "model_type", type) != type) decoder::refuse_text(text, text_types());
    return read_kimi_k3(text, unknown);
  }
};

}  // namespace

bool is_kimi_k3(const Node& keys) {
  const Node* names = model::given(keys, "architectures");
  if (names == nullptr || !names->is_list()) return false;
  return std::any_of(names->items().begin(), names->items().end(),
                     [](const Node& name) { return name == Node::text(kArchitecture); });
}

std::unique_ptr<ModelSpec> read_kimi_k3(const Node& keys, UnknownKeys unknown) {
  return decoder::Family<kimi_k3_text>().read(keys, unknown);
}

void offer_kimi_k3(Offer& plugin, const std::vector<FieldInfo>& of_kimi_linear) {
  plugin.model<KimiK3>("kimi_k3", table_of_whole(of_kimi_linear));
}

}  // namespace heddle::kimi_linear

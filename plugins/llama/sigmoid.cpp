// GLM-4.5 and Ling 2.0 (BailingMoeV2): partial rotation, dense layers first, shared experts, a sigmoid
// router.
#include "families.h"
#include "heddle/decoder/benchmark.h"
#include "keys.h"

namespace heddle::llama {
namespace {

struct SigmoidKeys : ExpertKeys {
  SigmoidKeys() { always_in_fp32 = true, rotary.part = 0.5; }
  std::optional<int64_t> shared = 1, first_dense = 1;  // n_shared_experts, first_k_dense_replace
  bool use_qk_norm = false;
};

struct Glm4MoeKeys : SigmoidKeys {
  Glm4MoeKeys() {
    vocab_size = 151552, intermediate_size = 10944;
    num_hidden_layers = 46, num_attention_heads = 96, usual_key_heads = 8;
    max_position_embeddings = 131072, rms_norm_eps = 1e-5;
    experts = 128, experts_of_token = 8, expert_width = 1408;
  }
};

struct BailingKeys : SigmoidKeys {
  BailingKeys() {
    vocab_size = 157184, hidden_size = 2048, intermediate_size = 5120;
    num_hidden_layers = 20, num_attention_heads = 16, usual_key_heads = 4, head_dim = 128;
    max_position_embeddings = 32768, rotary.theta = 600000, pad_token_id = 156892, use_qk_norm = true;
    experts = 256, experts_of_token = 8, expert_width = 512, groups = 8, top_groups = 4;
  }
  bool use_qkv_bias = false, use_bias = false;
  bool expert_bias = true;  // moe_router_enable_expert_bias
};

void settle_counts(SigmoidKeys& keys) {
  keys.shared = keys.shared.value_or(0);
  keys.first_dense = keys.first_dense.value_or(0);
}

// Declares the keys of both families. form.experts and the aliases are names of the number of experts.
template <class Own>
model::ModelKeys<Own> sigmoid_keys(const std::string& model_type, const char* shared,
                                   decoder::MixtureForm form, const std::vector<std::string>& aliases) {
  auto keys = add_common<Own>(model_type, {.partial = true});
  form.groups = "n_group", form.scale = "routed_scaling_factor";
  form.correction = form.in_fp32 = true;
  add_experts(keys, form, aliases, false);
  keys.field("use_qk_norm", &SigmoidKeys::use_qk_norm, "Normalize each head of queries and keys.")
      .field(shared, &SigmoidKeys::shared,
             "Number of shared experts, computed as one expert of that multiple of the width.",
             Range<int64_t>{0, 65536})
      .field("first_k_dense_replace", &SigmoidKeys::first_dense,
             "Number of layers, from the first, without experts.", Range<int64_t>{0, model::kMostLayers})
      .then(settle_counts)
      .unused("num_nextn_predict_layers",
              "Ignored: multi-token prediction layers are not trained, and their tensors are not read.");
  const auto check = [name = std::string(form.experts)](const Node& given, SigmoidKeys& read) {
    check_groups(given, read, name, 2);
    check_layers(given, {*read.first_dense < read.num_hidden_layers},
                 "first_k_dense_replace and num_hidden_layers");
  };
  const auto written = [](const SigmoidKeys&) {
    return std::vector<Node::Entry>{{"num_nextn_predict_layers", Node::integer(0)}};
  };
  keys.group({{}, check, written});
  return keys;
}

decoder::Model model_of(const SigmoidKeys& keys, decoder::Attention attention, decoder::Mixture mixture) {
  if (keys.use_qk_norm) attention.head_norm = decoder::Attention::HeadNorm::each_head;
  mixture.shared_width = *keys.shared * keys.expert_width;
  decoder::Model model = keys.model();
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i) {
    decoder::Layer layer{attention, keys.mlp(), keys.norm()};
    if (i >= *keys.first_dense) layer.feed_forward = mixture;
    model.layers.push_back(std::move(layer));
  }
  return model;
}

// --- GLM-4.5 ----------------------------------------------------------------------------------------------

model::ModelKeys<Glm4MoeKeys> glm4_moe_keys() {
  auto keys = sigmoid_keys<Glm4MoeKeys>("glm4_moe", "n_shared_experts",
                                        {.experts = "n_routed_experts", .normalised = "norm_topk_prob"},
                                        {"num_experts", "num_local_experts"});
  add_attention_bias(keys, "Whether q, k and v have biases.");
  return keys.unused("num_mtp_layers", "Newer name of num_nextn_predict_layers.");
}

decoder::Model glm4_moe_model(const Glm4MoeKeys& keys) {
  decoder::Attention attention = keys.attention();
  attention.qkv_bias = keys.attention_bias;
  return model_of(keys, attention, keys.corrected_mixture());
}

// Counts dense layers first, and shared experts in the other layers.
double glm4_moe_benchmark(const BenchmarkSizes& m) {
  const double dense = m.of("first_k_dense_replace", 0), shared = m.of("n_shared_experts", 0);
  return m.layers * m.grouped_attention() + dense * m.gated(m.f) +
         (m.layers - dense) * m.gated(m.expert_width() * (shared + m.chosen(1))) + m.logits();
}

const decoder::Description<Glm4MoeKeys>& glm4_moe() {
  static const decoder::Description<Glm4MoeKeys> kGlm = {.model_type = "glm4_moe",
                                                         .architecture = "Glm4MoeForCausalLM",
                                                         .keys = glm4_moe_keys(),
                                                         .model = glm4_moe_model,
                                                         .benchmark = glm4_moe_benchmark,
                                                         .signature = signature<glm4_moe>};
  return kGlm;
}

// --- Ling 2.0 ---------------------------------------------------------------------------------------------

void check_bailing(const Node& given, const BailingKeys& keys) {
  if (keys.expert_bias || keys.gate_bias_update_factor == 0) return;
  model::refuse(*given.find("gate_bias_update_factor"),
                "gate_bias_update_factor needs a correction bias, but moe_router_enable_expert_bias is false",
                "remove one of the two keys");
}

// Refuses Ling 1, which has the same model_type but a different router.
void check_architecture(const Node& given, const BailingKeys&) {
  const Node* names = model::given(given, "architectures");
  if (names == nullptr || !names->is_list()) return;
  for (const Node& name : names->items())
    if (name.as_text() == "BailingMoeV2ForCausalLM") return;
  model::refuse(*names, "bailing_moe is built as BailingMoeV2ForCausalLM (Ling 2), got " + names->written());
}

model::ModelKeys<BailingKeys> bailing_keys() {
  auto keys = sigmoid_keys<BailingKeys>("bailing_moe", "num_shared_experts", {},
                                        {"n_routed_experts", "num_local_experts"});
  keys.field("use_qkv_bias", &BailingKeys::use_qkv_bias, "Whether q, k and v have biases.")
      .field("use_bias", &BailingKeys::use_bias, "Whether o has a bias.")
      .field("moe_router_enable_expert_bias", &BailingKeys::expert_bias,
             "Add a correction bias to the scores that select experts.")
      .only("norm_topk_prob", Node::boolean(true), "Routing weights sum to 1 before scaling.")
      .only("score_function", Node::text("sigmoid"), "Function that converts router logits to scores.")
      .only("embedding_dropout", Node::real(0), "Dropout of the embeddings is not supported.")
      .only("output_dropout", Node::real(0), "Dropout of the outputs is not supported.");
  add_check<BailingKeys>(keys, check_bailing);
  add_check<BailingKeys>(keys, check_architecture);
  return keys;
}

decoder::Model bailing_model(const BailingKeys& keys) {
  decoder::Attention attention = keys.attention();
  attention.qkv_bias = keys.use_qkv_bias, attention.output_bias = keys.use_bias;
  decoder::Mixture mixture = keys.corrected_mixture();
  mixture.router.correction = keys.expert_bias;
  return model_of(keys, attention, mixture);
}

// q, k and v are rows of one tensor, in this order.
decoder::Files bailing_files() {
  decoder::Files files;
  return files.experts({.correction = "gate.expert_bias"})
      .joined("attention.query_key_value", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"})
      .renamed("model.embed_tokens", "model.word_embeddings")
      .renamed("self_attn.o_proj", "attention.dense")
      .renamed("self_attn.q_norm", "attention.query_layernorm")
      .renamed("self_attn.k_norm", "attention.key_layernorm");
}

// transformers has no code for this model_type.
const decoder::Description<BailingKeys>& bailing_moe() {
  static const decoder::Description<BailingKeys> kLing = {.model_type = "bailing_moe",
                                                          .architecture = "BailingMoeV2ForCausalLM",
                                                          .keys = bailing_keys(),
                                                          .model = bailing_model,
                                                          .files = bailing_files(),
                                                          .signature = signature<bailing_moe>};
  return kLing;
}

}  // namespace

void offer_sigmoid(Offer& plugin) {
  plugin.model<decoder::Family<glm4_moe>>("glm4_moe", glm4_moe().keys);
  plugin.model<decoder::Family<bailing_moe>>("bailing_moe", bailing_moe().keys);
}

}  // namespace heddle::llama

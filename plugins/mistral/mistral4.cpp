// Keys and layer descriptions of Mistral 4.
#include "mistral4.h"

#include <string>
#include <utility>

#include "files.h"
#include "heddle/decoder/benchmark.h"

namespace heddle::mistral {
namespace {

constexpr const char* kPart = "partial_rotary_factor";

std::string complaint(const Mistral4Keys& keys) {
  const int64_t heads = keys.num_attention_heads, each = keys.experts / keys.groups;
  if (keys.qk_rope_head_dim % 2 != 0)
    return "the rotary embedding needs an even qk_rope_head_dim, got " +
           std::to_string(keys.qk_rope_head_dim);
  if (heads > model::kLargestSize / (keys.qk_nope_head_dim + keys.qk_rope_head_dim + keys.v_head_dim))
    return "num_attention_heads " + std::to_string(heads) + " of these widths are more than " +
           std::to_string(model::kLargestSize);
  if (keys.experts % keys.groups != 0 || keys.top_groups > keys.groups ||
      keys.experts_of_token > each * keys.top_groups || (keys.groups > 1 && each < 2))
    return "n_group " + std::to_string(keys.groups) + " and topk_group " + std::to_string(keys.top_groups) +
           " do not fit n_routed_experts " + std::to_string(keys.experts) + " with num_experts_per_tok " +
           std::to_string(keys.experts_of_token);
  return "";
}

double part_of(const Mistral4Keys& keys) {
  const auto rotary = static_cast<double>(keys.qk_rope_head_dim);
  return rotary / (rotary + static_cast<double>(keys.qk_nope_head_dim));
}

// Reads partial_rotary_factor, which must follow from the head widths.
void read_rotary_part(const Node& given, Mistral4Keys& keys) {
  Node plain = given.without(kPart);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const Node* map = model::given(given, key);
    if (map == nullptr) continue;
    const Node* part = map->is_map() ? model::given(*map, kPart) : nullptr;
    if (part != nullptr && part->as_real() != part_of(keys))
      model::refuse(*part, "expected qk_rope_head_dim / (qk_nope_head_dim + qk_rope_head_dim), " +
                               std::to_string(part_of(keys)) + ", got " + part->written());
    if (part != nullptr) plain = plain.with(key, map->without(kPart));
  }
  const decoder::RotaryUse use{"mistral4", keys.qk_rope_head_dim, keys.max_position_embeddings, false, true};
  decoder::read_rotary(plain, keys.rotary, use);
  decoder::check_rotary(given, keys.rotary, use.head_dim);
}

model::KeyGroup<Mistral4Keys> rotary() {
  model::KeyGroup<Mistral4Keys> out;
  out.table = decoder::rotary_table(Mistral4Keys().rotary, false);
  out.read = read_rotary_part;
  out.write = [](const Mistral4Keys& keys) -> std::vector<Node::Entry> {
    const Node map = decoder::rotary_map(keys.rotary, false).with(kPart, Node::real(part_of(keys)));
    return {{"rope_parameters", map}};
  };
  return out;
}

void add_attention(model::ModelKeys<Mistral4Keys>& keys) {
  using Keys = Mistral4Keys;
  decoder::add_rms_norm(keys);
  keys.field("q_lora_rank", &Keys::q_lora_rank,
             "Rank of the low-rank query projection. null: a single full-rank projection.", decoder::kSize)
      .field("kv_lora_rank", &Keys::kv_lora_rank, "Rank of the latent of keys and values.", decoder::kSize)
      .field("qk_nope_head_dim", &Keys::qk_nope_head_dim,
             "Width of the unrotated part of a query or key head.", decoder::kSize)
      .field("qk_rope_head_dim", &Keys::qk_rope_head_dim,
             "Width of the rotated part of a head. All heads share that part of keys.", decoder::kSize)
      .field("v_head_dim", &Keys::v_head_dim, "Width of a value head.", decoder::kSize)
      .field("rope_interleave", &Keys::rope_interleave, "Rotate neighboring pairs. false: rotate halves.")
      .field("attention_bias", &Keys::attention_bias, "Whether q_a, kv_a and o have biases.")
      .group(rotary())
      .only("attention_dropout", Node::real(0), "Attention dropout is not supported.")
      .unused("head_dim", "Head widths are set by the keys above.")
      .unused("qk_head_dim", "The sum of qk_nope_head_dim and qk_rope_head_dim.")
      .unused("pretraining_tp", "No effect on results.");
}

void add_experts(model::ModelKeys<Mistral4Keys>& keys) {
  using Keys = Mistral4Keys;
  decoder::add_mixture(keys, {.experts = "n_routed_experts",
                              .groups = "n_group",
                              .scale = "routed_scaling_factor",
                              .normalised = "norm_topk_prob"});
  keys.field("n_shared_experts", &Keys::n_shared_experts,
             "Number of shared experts, computed as one expert of that multiple of the width.",
             Range<int64_t>{1, 65536})
      .field("first_k_dense_replace", &Keys::first_k_dense_replace,
             "Number of layers, from the first, without experts.", Range<int64_t>{0, model::kMostLayers})
      .rule(complaint)
      .only("hidden_act", Node::text("silu"), "Activation function of MLPs and experts.")
      .unused("output_router_logits", "No auxiliary loss is computed, as in transformers.");
}

model::ModelKeys<Mistral4Keys> keys_of_mistral4() {
  auto keys = decoder::common_keys<Mistral4Keys>(
      {.mlp = "Width of the MLP. No effect if first_k_dense_replace is 0.", .latent = true});
  add_attention(keys);
  add_experts(keys);
  keys.then([](Mistral4Keys& given) { given.head_dim = given.qk_nope_head_dim + given.qk_rope_head_dim; });
  return keys;
}

decoder::Latent latent_of(const Mistral4Keys& keys) {
  decoder::Latent out;
  out.heads = keys.num_attention_heads;
  out.rank = keys.kv_lora_rank, out.query_rank = keys.q_lora_rank.value_or(0);
  out.plain = keys.qk_nope_head_dim, out.rotary = keys.qk_rope_head_dim, out.value = keys.v_head_dim;
  out.bias = keys.attention_bias;
  out.interleaved = keys.rope_interleave;
  out.theta = keys.rotary.theta, out.scaling = keys.rotary.scaling;
  if (keys.rotary.query_beta != 0)
    out.query_scaling = {keys.rotary.query_beta, keys.rotary.scaling.original_positions};
  return out;
}

decoder::Mixture mixture_of(const Mistral4Keys& keys) {
  decoder::Mixture out = keys.mixture();
  out.router.rule.group_best = 2;
  out.shared_width = keys.n_shared_experts * keys.expert_width;
  return out;
}

decoder::Model model_of(const Mistral4Keys& keys) {
  decoder::Model model = keys.model();
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i) {
    decoder::Layer layer{latent_of(keys), keys.mlp(), keys.norm()};
    if (i >= keys.first_k_dense_replace) layer.feed_forward = mixture_of(keys);
    model.layers.push_back(std::move(layer));
  }
  return model;
}

// One tensor holds a projection of all experts.
decoder::Files files_of_mistral4() {
  decoder::ExpertFiles experts;
  experts.stacked = true, experts.transposed = false;
  return files_of_text().experts(experts);
}

}  // namespace

Mistral4Keys::Mistral4Keys() {
  vocab_size = 131072, intermediate_size = 12288, num_hidden_layers = 36;
  max_position_embeddings = 1048576, pad_token_id = 11;
  experts = 128, experts_of_token = 4, expert_width = 2048;
  rotary = {.theta = 10000, .query_beta = 0.1};
  rotary.scaling.kind = RotaryScaling::Kind::yarn;
  rotary.scaling.factor = 128, rotary.scaling.original_positions = 8192;
  rotary.scaling.attention_factor = 1;  // transformers applies mscale_all_dim to scores
}

const decoder::Description<Mistral4Keys>& mistral4() {
  static const decoder::Description<Mistral4Keys> kMistral4 = {"mistral4",
                                                               "Mistral4ForCausalLM",
                                                               keys_of_mistral4(),
                                                               model_of,
                                                               files_of_mistral4(),
                                                               nullptr,
                                                               decoder::latent_benchmark_of_keys};
  return kMistral4;
}

}  // namespace heddle::mistral

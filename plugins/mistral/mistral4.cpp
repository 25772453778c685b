// The keys and the layers of Mistral 4.
#include "mistral4.h"

#include <string>
#include <utility>

#include "files.h"

namespace heddle::mistral {
namespace {

constexpr const char* kPart = "partial_rotary_factor";

std::string complaint(const Mistral4Keys& keys) {
  const int64_t heads = keys.num_attention_heads, each = keys.n_routed_experts / keys.n_group;
  if (keys.num_key_value_heads.value_or(heads) != heads)
    return "latent attention has as many heads of keys as of queries, " + std::to_string(heads) + ", got " +
           std::to_string(*keys.num_key_value_heads);
  if (keys.qk_rope_head_dim % 2 != 0)
    return "the rotary embedding needs an even qk_rope_head_dim, got " +
           std::to_string(keys.qk_rope_head_dim);
  if (heads > model::kLargestSize / (keys.qk_nope_head_dim + keys.qk_rope_head_dim + keys.v_head_dim))
    return "num_attention_heads " + std::to_string(heads) + " of these widths are more than " +
           std::to_string(model::kLargestSize);
  if (keys.n_routed_experts % keys.n_group != 0 || keys.topk_group > keys.n_group ||
      keys.num_experts_per_tok > each * keys.topk_group || (keys.n_group > 1 && each < 2))
    return "n_group " + std::to_string(keys.n_group) + " and topk_group " + std::to_string(keys.topk_group) +
           " do not fit n_routed_experts " + std::to_string(keys.n_routed_experts) +
           " of which a token takes " + std::to_string(keys.num_experts_per_tok);
  return "";
}

double part_of(const Mistral4Keys& keys) {
  const auto rotary = static_cast<double>(keys.qk_rope_head_dim);
  return rotary / (rotary + static_cast<double>(keys.qk_nope_head_dim));
}

// The part of a head that is rotated follows from its widths.
void read_rotary_part(const Node& given, Mistral4Keys& keys) {
  Node plain = given.without(kPart);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const Node* map = model::given(given, key);
    if (map == nullptr) continue;
    const Node* part = map->is_map() ? model::given(*map, kPart) : nullptr;
    if (part != nullptr && part->as_real() != part_of(keys))
      model::refuse(*part, "qk_rope_head_dim of qk_nope_head_dim + qk_rope_head_dim numbers are rotated, " +
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
             "Width of the queries' latent; null: queries are one product.", decoder::kSize)
      .field("kv_lora_rank", &Keys::kv_lora_rank, "Width of the latent of keys and values.", decoder::kSize)
      .field("qk_nope_head_dim", &Keys::qk_nope_head_dim,
             "Numbers of a query's and a key's head without a position.", decoder::kSize)
      .field("qk_rope_head_dim", &Keys::qk_rope_head_dim,
             "Numbers with a position; all heads share those of keys.", decoder::kSize)
      .field("v_head_dim", &Keys::v_head_dim, "Width of a head of values.", decoder::kSize)
      .field("rope_interleave", &Keys::rope_interleave, "Rotated pairs are neighbours; else halves.")
      .field("attention_bias", &Keys::attention_bias, "Biases of q_a, kv_a and o.")
      .group(rotary())
      .only("attention_dropout", Node::real(0), "Dropout is refused.")
      .unused("head_dim", "The widths above act.")
      .unused("qk_head_dim", "The sum of qk_nope_head_dim and qk_rope_head_dim.")
      .unused("pretraining_tp", "It changes no number.");
}

void add_experts(model::ModelKeys<Mistral4Keys>& keys) {
  using Keys = Mistral4Keys;
  keys.field("n_routed_experts", &Keys::n_routed_experts, "Experts of a layer.", Range<int64_t>{1, 65536})
      .field("num_experts_per_tok", &Keys::num_experts_per_tok, "Experts of a token.", decoder::kSize)
      .field("moe_intermediate_size", &Keys::moe_intermediate_size, "Width of an expert.", decoder::kSize)
      .field("n_shared_experts", &Keys::n_shared_experts,
             "Experts of every token, as one of so many times the width.", Range<int64_t>{1, 65536})
      .field("first_k_dense_replace", &Keys::first_k_dense_replace, "Layers before this one have no experts.",
             Range<int64_t>{0, model::kMostLayers})
      .field("n_group", &Keys::n_group, "Groups of experts.", decoder::kSize)
      .field("topk_group", &Keys::topk_group, "A token's experts are in so many of the groups.",
             decoder::kSize)
      .field("norm_topk_prob", &Keys::norm_topk_prob, "The weights sum to 1, before they are scaled.")
      .field("routed_scaling_factor", &Keys::routed_scaling_factor, "Of the weights of a token's experts.",
             at_least(0.0))
      .field("router_aux_loss_type", &Keys::router_aux_loss_type, "Auxiliary loss; null: none.",
             OneOf{{"none", "layer", "sequence", "global", "model"}})
      .field("router_aux_loss_coef", &Keys::router_aux_loss_coef,
             "Its coefficient; without that loss it changes nothing.", at_least(0.0))
      .field("router_z_loss_coef", &Keys::router_z_loss_coef, "Coefficient of the router's z-loss.",
             at_least(0.0))
      .field("router_dtype", &Keys::router_dtype, "Dtype of the router's product; null: the model's.",
             OneOf{{"float32", "fp32"}})
      .field("fake_balanced_gate", &Keys::fake_balanced_gate, "For benchmarks: experts in turn.")
      .rule(complaint)
      .only("hidden_act", Node::text("silu"), "Activation of MLPs and experts.")
      .unused("output_router_logits", "No auxiliary loss is computed, as in transformers.");
}

void add_sizes(model::ModelKeys<Mistral4Keys>& keys) {
  using Common = decoder::CommonKeys;
  keys.field("vocab_size", &Common::vocab_size, "Tokens.", decoder::kSize)
      .field("hidden_size", &Common::hidden_size, "Width of the hidden states.", decoder::kSize)
      .field("intermediate_size", &Common::intermediate_size,
             "Width of the MLP; where first_k_dense_replace is 0 it changes nothing.", decoder::kSize)
      .field("num_hidden_layers", &Common::num_hidden_layers, "Decoder layers.",
             Range<int64_t>{1, model::kMostLayers})
      .field("num_attention_heads", &Common::num_attention_heads, "Heads.", decoder::kSize)
      .field("num_key_value_heads", &Common::num_key_value_heads,
             "Another name of num_attention_heads, as latent attention has as many of each.", decoder::kSize)
      .field("max_position_embeddings", &Common::max_position_embeddings, "Longest sequence.", decoder::kSize)
      .field("initializer_range", &Common::initializer_range, "Standard deviation of random weights.",
             at_least(0.0))
      .field("tie_word_embeddings", &Common::tie_word_embeddings,
             "The head computes with the embedding's weight.")
      .field("pad_token_id", &Common::pad_token_id,
             "Its row of the embedding gets no gradient from the look-up; below 0: counted from the end.")
      .field("dtype", &Common::dtype, "Of the stored weights.")
      .field("torch_dtype", &Common::torch_dtype, "The older name of dtype.")
      .rule([](const Mistral4Keys& given) { return given.complaint(); })
      .only("quantization_config", Node(), "Refused: files in fp8 have one scale a tensor.");
}

model::ModelKeys<Mistral4Keys> keys_of_mistral4() {
  model::ModelKeys<Mistral4Keys> keys;
  add_sizes(keys);
  add_attention(keys);
  add_experts(keys);
  keys.then([](Mistral4Keys& given) {
    given.head_dim = given.qk_nope_head_dim + given.qk_rope_head_dim;
    if (given.pad_token_id == 11 && given.vocab_size <= 11) given.pad_token_id.reset();  // the default
  });
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
  using Form = model::BalanceLoss::Form;
  const std::string word = keys.router_aux_loss_type.value_or("none");
  decoder::Mixture out;
  RouterConfig& router = out.router;
  router.experts = keys.n_routed_experts;
  router.rule.top_k = keys.num_experts_per_tok;
  router.rule.groups = keys.n_group, router.rule.top_groups = keys.topk_group, router.rule.group_best = 2;
  router.rule.normalise = keys.norm_topk_prob, router.rule.scale = keys.routed_scaling_factor;
  router.in_fp32 = keys.router_dtype.has_value();
  router.in_turn = keys.fake_balanced_gate;
  router.balance.coefficient = keys.router_aux_loss_coef;
  router.balance.form = word == "layer"      ? Form::layer
                        : word == "sequence" ? Form::sequence
                        : word == "global"   ? Form::global
                        : word == "model"    ? Form::model
                                             : Form::none;
  router.z_loss = keys.router_z_loss_coef;
  out.width = keys.moe_intermediate_size;
  out.shared_width = keys.n_shared_experts * keys.moe_intermediate_size;
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

// One tensor for all experts and each product.
decoder::Files files_of_mistral4() {
  decoder::ExpertFiles experts;
  experts.stacked = true, experts.transposed = false;
  return files_of_text().experts(experts);
}

}  // namespace

Mistral4Keys::Mistral4Keys() {
  vocab_size = 131072, intermediate_size = 12288, num_hidden_layers = 36;
  max_position_embeddings = 1048576, pad_token_id = 11;
  rotary = {.theta = 10000, .query_beta = 0.1};
  rotary.scaling.kind = RotaryScaling::Kind::yarn;
  rotary.scaling.factor = 128, rotary.scaling.original_positions = 8192;
  rotary.scaling.mscale = rotary.scaling.mscale_all_dim = 1;
}

const decoder::Description<Mistral4Keys>& mistral4() {
  static const decoder::Description<Mistral4Keys> kMistral4 = {
      "mistral4", "Mistral4ForCausalLM", keys_of_mistral4(), model_of, files_of_mistral4()};
  return kMistral4;
}

}  // namespace heddle::mistral

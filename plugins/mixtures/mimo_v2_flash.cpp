// MiMo-V2-Flash: values with another width than keys; sliding-window layers with sinks and twice the key
// heads.
#include "families.h"
#include "keys.h"

namespace heddle::mixtures {
namespace {

constexpr double kPart = 0.334;  // default fraction of a head that is rotated

struct MimoKeys : Keys {
  MimoKeys() {
    vocab_size = 152576, intermediate_size = 16384, num_hidden_layers = 48, num_attention_heads = 64;
    num_key_value_heads = 4, head_dim = 192, max_position_embeddings = 131072, rms_norm_eps = 1e-5;
    rotary = {.theta = 5e6, .part = kPart}, sliding_rotary = {.theta = 10000, .part = kPart};
    experts = 256, experts_of_token = 8, expert_width = 2048;
  }
  int64_t v_head_dim = 128, sliding_window = 129;
  std::optional<double> attention_value_scale = 0.707, layernorm_epsilon, routed_scaling_factor;
  std::optional<int64_t> sliding_window_size;
  // Names in published files: 1 for sliding_attention layers, and for layers with experts.
  std::optional<std::vector<int64_t>> hybrid_layer_pattern, moe_layer_freq;
  std::optional<int64_t> swa_num_attention_heads, swa_num_key_value_heads, swa_head_dim, swa_v_head_dim;

  int64_t key_heads() const { return num_key_value_heads.value_or(num_attention_heads); }
};

using Words = std::optional<std::vector<std::string>>;
using Numbers = std::optional<std::vector<int64_t>>;

// Fills absent words from numbers, and absent numbers from words.
void fill_words(Words& words, Numbers& numbers, const char* zero, const char* one) {
  if (!words) {
    words.emplace();
    for (const int64_t number : *numbers) words->emplace_back(number == 0 ? zero : one);
  }
  if (numbers) return;
  numbers.emplace();
  for (const std::string& word : *words) numbers->push_back(word == one ? 1 : 0);
}

void fill_mimo(MimoKeys& keys) {
  std::vector<int64_t> slides, sparse;
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i) {
    slides.push_back(i != 0 && (i + 1) % 6 != 0 ? 1 : 0);
    sparse.push_back(i != 0 ? 1 : 0);
  }
  if (!keys.layer_types && !keys.hybrid_layer_pattern) keys.hybrid_layer_pattern = slides;
  if (!keys.mlp_layer_types && !keys.moe_layer_freq) keys.moe_layer_freq = sparse;
  fill_words(keys.layer_types, keys.hybrid_layer_pattern, decoder::kFullAttention,
             decoder::kSlidingAttention);
  fill_words(keys.mlp_layer_types, keys.moe_layer_freq, kDense, kSparse);
  if (keys.layernorm_epsilon) keys.rms_norm_eps = *keys.layernorm_epsilon;
  keys.layernorm_epsilon = keys.rms_norm_eps;
  if (keys.sliding_window_size) keys.sliding_window = *keys.sliding_window_size + 1;
  keys.sliding_window_size = keys.sliding_window - 1;
  if (keys.routed_scaling_factor) keys.routed_scale = *keys.routed_scaling_factor;
  keys.routed_scaling_factor = keys.routed_scale;
  const auto set = [](std::optional<int64_t>& slot, int64_t value) { slot = slot.value_or(value); };
  set(keys.swa_num_attention_heads, keys.num_attention_heads);
  set(keys.swa_num_key_value_heads, 2 * keys.key_heads());
  set(keys.swa_head_dim, keys.head_width());
  set(keys.swa_v_head_dim, keys.v_head_dim);
}

std::string complaint_of_names(const char* numbers, const Numbers& given, const char* words, const Words& of,
                               const char* one) {
  if (given->size() != of->size())
    return std::string(numbers) + " has " + std::to_string(given->size()) + " numbers, but " + words + " " +
           std::to_string(of->size()) + " words";
  for (size_t i = 0; i < given->size(); ++i)
    if (((*given)[i] != 0) != ((*of)[i] == one))
      return std::string(numbers) + " and " + words + " differ for layer " + std::to_string(i) +
             ": set only one of them";
  return "";
}

std::string complaint_of_heads(const MimoKeys& keys) {
  const std::pair<const char*, std::pair<std::optional<int64_t>, int64_t>> kSliding[] = {
      {"swa_num_attention_heads", {keys.swa_num_attention_heads, keys.num_attention_heads}},
      {"swa_num_key_value_heads", {keys.swa_num_key_value_heads, 2 * keys.key_heads()}},
      {"swa_head_dim", {keys.swa_head_dim, keys.head_width()}},
      {"swa_v_head_dim", {keys.swa_v_head_dim, keys.v_head_dim}}};
  for (const auto& [key, values] : kSliding)
    if (values.first && *values.first != values.second)
      return std::string(key) + " must be " + std::to_string(values.second) +
             " in transformers (sliding_attention layers have twice the key heads, and otherwise equal "
             "sizes), got " +
             std::to_string(*values.first);
  if (keys.num_attention_heads % (2 * keys.key_heads()) != 0)
    return "sliding_attention layers have twice num_key_value_heads, " +
           std::to_string(2 * keys.key_heads()) + ", which does not divide num_attention_heads " +
           std::to_string(keys.num_attention_heads);
  return "";
}

std::string complaint_of_mimo(const MimoKeys& keys) {
  const int64_t each = keys.experts / keys.groups;
  if (keys.experts % keys.groups != 0 || keys.top_groups > keys.groups ||
      keys.experts_of_token > each * keys.top_groups || (keys.groups > 1 && each < 2))
    return "n_group " + std::to_string(keys.groups) + " and topk_group " + std::to_string(keys.top_groups) +
           " do not fit " + std::to_string(keys.experts) + " experts with num_experts_per_tok " +
           std::to_string(keys.experts_of_token);
  if (std::string names = complaint_of_names("hybrid_layer_pattern", keys.hybrid_layer_pattern, "layer_types",
                                             keys.layer_types, decoder::kSlidingAttention);
      !names.empty())
    return names;
  return complaint_of_names("moe_layer_freq", keys.moe_layer_freq, "mlp_layer_types", keys.mlp_layer_types,
                            kSparse);
}

void read_rotary(const Node& given, MimoKeys& keys) {
  if (model::given(given, "rope_parameters") != nullptr)
    return read_rotary_of_types(given, keys, "mimo_v2_flash", kPart);
  const decoder::RotaryUse use{"mimo_v2_flash", keys.head_width(), keys.max_position_embeddings, true};
  Node sliding = given.without("rope_theta");
  if (const Node* theta = model::given(given, "swa_rope_theta")) sliding = sliding.with("rope_theta", *theta);
  decoder::read_rotary(given, keys.rotary, use);
  decoder::read_rotary(sliding, keys.sliding_rotary, use);
  for (const decoder::RotaryKeys* one : {&keys.rotary, &keys.sliding_rotary})
    decoder::check_rotary(given, *one, use.head_dim);
}

model::KeyGroup<MimoKeys> mimo_rotary() {
  model::KeyGroup<MimoKeys> out;
  const std::string where = " Used if rope_parameters is absent.";
  out.table = {rotary_of_types_info(),
               {"rope_theta", "number", "5000000.0", "above 0",
                "Base of the rotary wavelengths in full_attention layers." + where, ""},
               {"swa_rope_theta", "number", "10000.0", "above 0",
                "Base of the rotary wavelengths in sliding_attention layers." + where, ""},
               {"partial_rotary_factor", "number", "0.334", "above 0, to 1.0",
                "Fraction of each head that is rotated, from its start." + where, ""}};
  out.read = read_rotary;
  out.write = [](const MimoKeys& keys) -> std::vector<Node::Entry> {
    std::vector<Node::Entry> entries = {{"rope_parameters", rotary_of_types(keys)}};
    if (keys.rotary.part != keys.sliding_rotary.part) return entries;
    entries.emplace_back("rope_theta", Node::real(keys.rotary.theta));
    entries.emplace_back("swa_rope_theta", Node::real(keys.sliding_rotary.theta));
    entries.emplace_back("partial_rotary_factor", Node::real(keys.rotary.part));
    return entries;
  };
  return out;
}

void add_attention(model::ModelKeys<MimoKeys>& keys) {
  decoder::add_head_dim(keys);
  keys.field("v_head_dim", &MimoKeys::v_head_dim, "Width of a value head.", decoder::kSize)
      .field("attention_bias", &Keys::attention_bias, "Whether q, k and v have biases.")
      .field("attention_value_scale", &MimoKeys::attention_value_scale, "Factor of the values. null: 1.")
      .field("sliding_window", &MimoKeys::sliding_window,
             "Size of the window of sliding_attention layers in tokens, including the current token.",
             decoder::kSize)
      .field("sliding_window_size", &MimoKeys::sliding_window_size,
             "Published spelling of sliding_window, minus 1. It takes precedence.",
             Range<int64_t>{0, model::kLargestSize - 1})
      .field("hybrid_layer_pattern", &MimoKeys::hybrid_layer_pattern,
             "layer_types as numbers: 1 for sliding_attention. If both are null, the first layer and every "
             "sixth have full attention.")
      .field("swa_num_attention_heads", &MimoKeys::swa_num_attention_heads,
             "Number of query heads in sliding_attention layers. No effect, because it must equal "
             "num_attention_heads.",
             decoder::kSize)
      .field("swa_num_key_value_heads", &MimoKeys::swa_num_key_value_heads,
             "Number of key-value heads in sliding_attention layers. No effect, because it must be twice "
             "num_key_value_heads.",
             decoder::kSize)
      .field("swa_head_dim", &MimoKeys::swa_head_dim,
             "Width of a query or key head in sliding_attention layers. No effect, because it must equal "
             "head_dim.",
             decoder::kSize)
      .field(
          "swa_v_head_dim", &MimoKeys::swa_v_head_dim,
          "Width of a value head in sliding_attention layers. No effect, because it must equal v_head_dim.",
          decoder::kSize)
      .rule(complaint_of_heads)
      .only("add_swa_attention_sink_bias", Node::boolean(true), "sliding_attention layers have sinks.")
      .only("add_full_attention_sink_bias", Node::boolean(false), "full_attention layers have no sinks.")
      .only("attention_dropout", Node::real(0), "Attention dropout is not supported.")
      .only("rope_scaling", Node(), "Set rope_parameters instead.")
      .unused("hybrid_block_size", "hybrid_layer_pattern is used instead.")
      .unused("attention_chunk_size", "Not read by transformers.");
}

void add_expert_keys(model::ModelKeys<MimoKeys>& keys) {
  add_experts(
      keys,
      {.experts = "n_routed_experts", .groups = "n_group", .normalised = "norm_topk_prob", .in_fp32 = true});
  keys.field("routed_scaling_factor", &MimoKeys::routed_scaling_factor,
             "Scale of the routing weights of the selected experts. null: 1.", at_least(0.0))
      .field("moe_layer_freq", &MimoKeys::moe_layer_freq,
             "mlp_layer_types as numbers: 1 for layers with experts. If both are null, all layers but the "
             "first have experts.")
      .only("scoring_func", Node::text("sigmoid"), "Function that converts router logits to scores.")
      .only("topk_method", Node::text("noaux_tc"), "A correction bias selects experts.")
      .only("n_shared_experts", Node(), "Shared experts are not supported by transformers.")
      .unused("output_router_logits", "No auxiliary loss is computed, as in transformers.");
}

model::ModelKeys<MimoKeys> mimo_keys() {
  auto keys = decoder::common_keys<MimoKeys>();
  decoder::add_rms_norm(keys);
  keys.field("layernorm_epsilon", &MimoKeys::layernorm_epsilon,
             "Name of rms_norm_eps in published files. It takes precedence.", at_least(1e-38))
      .group(mimo_rotary());
  add_attention(keys);
  add_layer_words(keys);
  add_expert_keys(keys);
  keys.then(fill_mimo).rule(complaint_of_mimo);
  return keys;
}

decoder::Attention attention(const MimoKeys& keys, int64_t layer) {
  decoder::Attention out = attention_of(keys, layer, keys.sliding_window);
  out.head_norm = decoder::Attention::HeadNorm::none;
  out.output_bias = false;
  out.options.value_dim = keys.v_head_dim;
  out.value_scale = keys.attention_value_scale.value_or(1);
  out.sinks = keys.slides(layer);
  if (out.sinks) out.kv_heads *= 2;
  return out;
}

decoder::Model model_of(const MimoKeys& keys) {
  decoder::Model model = keys.model();
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i) {
    decoder::Layer layer{attention(keys, i), keys.mlp(), keys.norm()};
    if (keys.sparse(i)) {
      decoder::Mixture mixture = keys.corrected_mixture();
      mixture.router.in_fp32 = true;
      layer.feed_forward = mixture;
    }
    model.layers.push_back(std::move(layer));
  }
  return model;
}

const decoder::Description<MimoKeys>& mimo_v2_flash() {
  static const decoder::Description<MimoKeys> kMimo = {
      "mimo_v2_flash", "MiMoV2FlashForCausalLM", mimo_keys(), model_of,
      decoder::Files()
          .renamed("self_attn.sinks", "self_attn.attention_sink_bias")
          .ignored_module("model.mtp")};
  return kMimo;
}

}  // namespace

void offer_mimo_v2_flash(Offer& plugin) {
  plugin.model<decoder::Family<mimo_v2_flash>>("mimo_v2_flash", mimo_v2_flash().keys);
}

}  // namespace heddle::mixtures

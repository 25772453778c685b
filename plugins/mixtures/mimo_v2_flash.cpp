// MiMo-V2-Flash: values of another width than keys, windows with sinks and twice the heads of keys.
#include "families.h"
#include "keys.h"

namespace heddle::mixtures {
namespace {

constexpr double kPart = 0.334;  // of a head is rotated

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
  // The published names: 1 for layers that slide, and for those with experts.
  std::optional<std::vector<int64_t>> hybrid_layer_pattern, moe_layer_freq;
  std::optional<int64_t> swa_num_attention_heads, swa_num_key_value_heads, swa_head_dim, swa_v_head_dim;

  int64_t key_heads() const { return num_key_value_heads.value_or(num_attention_heads); }
};

using Words = std::optional<std::vector<std::string>>;
using Numbers = std::optional<std::vector<int64_t>>;

// From numbers to words where these are absent, then from words to numbers where those are.
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
    return std::string(numbers) + " has " + std::to_string(given->size()) + " numbers and " + words + " " +
           std::to_string(of->size()) + " words";
  for (size_t i = 0; i < given->size(); ++i)
    if (((*given)[i] != 0) != ((*of)[i] == one))
      return std::string(numbers) + " and " + words + " differ for layer " + std::to_string(i) +
             ": give one of them";
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
      return std::string(key) + ": transformers has " + std::to_string(values.second) +
             " here (layers that slide have twice the heads of keys, and all else alike), got " +
             std::to_string(*values.first);
  if (keys.num_attention_heads % (2 * keys.key_heads()) != 0)
    return "layers that slide have twice num_key_value_heads, " + std::to_string(2 * keys.key_heads()) +
           ", which does not divide num_attention_heads " + std::to_string(keys.num_attention_heads);
  return "";
}

std::string complaint_of_mimo(const MimoKeys& keys) {
  const int64_t each = keys.experts / keys.groups;
  if (keys.experts % keys.groups != 0 || keys.top_groups > keys.groups ||
      keys.experts_of_token > each * keys.top_groups || (keys.groups > 1 && each < 2))
    return "n_group " + std::to_string(keys.groups) + " and topk_group " + std::to_string(keys.top_groups) +
           " do not fit " + std::to_string(keys.experts) + " experts of which a token takes " +
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
  const std::string where = " Where rope_parameters is absent.";
  out.table = {
      rotary_of_types_info(),
      {"rope_theta", "number", "5000000.0", "above 0", "The base in layers with full attention." + where, ""},
      {"swa_rope_theta", "number", "10000.0", "above 0", "The base in layers that slide." + where, ""},
      {"partial_rotary_factor", "number", "0.334", "above 0, to 1.0",
       "Part of each head that is rotated, its first numbers." + where, ""}};
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
  keys.field("v_head_dim", &MimoKeys::v_head_dim, "Width of a head of values.", decoder::kSize)
      .field("attention_bias", &Keys::attention_bias, "Biases of q, k and v.")
      .field("attention_value_scale", &MimoKeys::attention_value_scale,
             "Values are multiplied by it; null: they are not.")
      .field("sliding_window", &MimoKeys::sliding_window,
             "In layers that slide, a token sees itself and those less than so many before it.",
             decoder::kSize)
      .field("sliding_window_size", &MimoKeys::sliding_window_size,
             "One less, in the published spelling; it wins.", Range<int64_t>{0, model::kLargestSize - 1})
      .field("hybrid_layer_pattern", &MimoKeys::hybrid_layer_pattern,
             "layer_types as numbers, 1 for layers that slide; null of both: the first layer and every sixth "
             "have full attention.")
      .field("swa_num_attention_heads", &MimoKeys::swa_num_attention_heads,
             "Only num_attention_heads: it changes nothing.", decoder::kSize)
      .field("swa_num_key_value_heads", &MimoKeys::swa_num_key_value_heads,
             "Only twice num_key_value_heads: it changes nothing.", decoder::kSize)
      .field("swa_head_dim", &MimoKeys::swa_head_dim, "Only head_dim: it changes nothing.", decoder::kSize)
      .field("swa_v_head_dim", &MimoKeys::swa_v_head_dim, "Only v_head_dim: it changes nothing.",
             decoder::kSize)
      .rule(complaint_of_heads)
      .only("add_swa_attention_sink_bias", Node::boolean(true), "Layers that slide have sinks.")
      .only("add_full_attention_sink_bias", Node::boolean(false), "Others have none.")
      .only("attention_dropout", Node::real(0), "Dropout is refused.")
      .only("rope_scaling", Node(), "rope_parameters has it.")
      .unused("hybrid_block_size", "hybrid_layer_pattern has it.")
      .unused("attention_chunk_size", "transformers does not read it.");
}

void add_expert_keys(model::ModelKeys<MimoKeys>& keys) {
  add_experts(
      keys,
      {.experts = "n_routed_experts", .groups = "n_group", .normalised = "norm_topk_prob", .in_fp32 = true});
  keys.field("routed_scaling_factor", &MimoKeys::routed_scaling_factor,
             "Of the weights of a token's experts; null: 1.", at_least(0.0))
      .field("moe_layer_freq", &MimoKeys::moe_layer_freq,
             "mlp_layer_types as numbers, 1 for layers with experts; null of both: all but the first.")
      .only("scoring_func", Node::text("sigmoid"), "Scores of the router.")
      .only("topk_method", Node::text("noaux_tc"), "A bias chooses experts.")
      .only("n_shared_experts", Node(), "Shared experts are refused: transformers has none here.")
      .unused("output_router_logits", "No auxiliary loss is computed, as in transformers.");
}

model::ModelKeys<MimoKeys> mimo_keys() {
  auto keys = decoder::common_keys<MimoKeys>();
  decoder::add_rms_norm(keys);
  keys.field("layernorm_epsilon", &MimoKeys::layernorm_epsilon,
             "The published name of rms_norm_eps; it wins.", at_least(1e-38))
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

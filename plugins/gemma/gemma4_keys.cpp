// Keys of Gemma 4: head widths and rotary embeddings per layer type.
#include "gemma4_keys.h"

#include <utility>

namespace heddle::gemma {
namespace {

using decoder::kFullAttention;
using decoder::kSlidingAttention;

constexpr const char* kRotary = "rope_parameters";
constexpr const char* kLayers = "per_layer_config";

std::string complaint_of_layers(const Gemma4Keys& keys) {
  if (std::string out = decoder::complaint_of_layer_types(keys.layer_types, keys.num_hidden_layers);
      !out.empty())
    return out;
  if (keys.layer_types && keys.layer_types->back() != kFullAttention)
    return "layer_types: the last layer must be full_attention, got '" + keys.layer_types->back() +
           "', which transformers replaces";
  return "";
}

std::string complaint_of_sharing(const Gemma4Keys& keys) {
  const std::string shared = "num_kv_shared_layers " + std::to_string(keys.num_kv_shared_layers);
  if (keys.num_kv_shared_layers >= keys.num_hidden_layers)
    return shared + ": all " + std::to_string(keys.num_hidden_layers) +
           " layers would share keys and none would have its own";
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i)
    if (keys.shares(i) && !keys.source_of(i))
      return shared + ": layer " + std::to_string(i) + " has no earlier layer of its type with its own keys";
  return "";
}

std::string complaint_of_inputs(const Gemma4Keys& keys) {
  if (keys.hidden_size_per_layer_input == 0 || keys.vocab_size_per_layer_input >= keys.vocab_size) return "";
  return "vocab_size_per_layer_input " + std::to_string(keys.vocab_size_per_layer_input) +
         " is less than vocab_size " + std::to_string(keys.vocab_size) +
         ", so some tokens have no per-layer inputs";
}

std::string complaint_of_experts(const Gemma4Keys& keys) {
  if (!keys.enable_moe_block) return "";
  if (!keys.num_experts || !keys.top_k_experts || !keys.moe_intermediate_size)
    return "enable_moe_block: true needs num_experts, top_k_experts and moe_intermediate_size";
  if (*keys.top_k_experts > *keys.num_experts)
    return "top_k_experts " + std::to_string(*keys.top_k_experts) + " is more than num_experts " +
           std::to_string(*keys.num_experts);
  if (!expert_activation(keys.hidden_activation))
    return "hidden_activation '" + keys.hidden_activation + "' of experts is not built";
  return "";
}

std::string complaint_of_heads(const Gemma4Keys& keys) {
  const int64_t heads = keys.num_attention_heads, of_keys = keys.heads_of_keys(false);
  if (heads % of_keys != 0)
    return "num_attention_heads " + std::to_string(heads) + " is not a multiple of the " +
           std::to_string(of_keys) + " key heads of full-attention layers";
  if (heads > model::kLargestSize / keys.global_head_dim)
    return "num_attention_heads " + std::to_string(heads) + " of global_head_dim " +
           std::to_string(keys.global_head_dim) + " are more than " + std::to_string(model::kLargestSize);
  return "";
}

// Head widths of one layer in per_layer_config.
struct Widths {
  int64_t head_dim = 0, of_keys = 0;
  bool operator==(const Widths&) const = default;
};

Widths widths_of(const Node& layer, Widths out) {
  if (!layer.is_map()) model::refuse(layer, "expected a map of this layer's keys, got " + layer.written());
  for (const auto& [key, value] : layer.entries()) {
    if (key != "head_dim" && key != "num_key_value_heads")
      model::refuse(value, "the key " + key + " of a single layer is not built",
                    "set head_dim and num_key_value_heads only");
    (key == "head_dim" ? out.head_dim : out.of_keys) = model::size_or(layer, key, 1);
  }
  return out;
}

const Node* find_layer(const Node& layers, int64_t index) {
  for (const auto& [key, value] : layers.entries())
    if (key.find_first_not_of("0123456789") == std::string::npos && !key.empty() && key.size() < 10 &&
        std::stoll(key) == index)
      return &value;
  return nullptr;
}

// Reads transformers' spelling of the widths of full-attention layers, one layer at a time.
void read_layers(const Node& keys, Gemma4Keys& out) {
  const Node* layers = model::given(keys, kLayers);
  if (layers == nullptr) return;
  if (!layers->is_map()) model::refuse(*layers, "expected a map of layers, got " + layers->written());
  const Widths base{out.head_width(), out.num_key_value_heads.value_or(out.num_attention_heads)};
  std::optional<Widths> global;
  size_t found = 0;
  for (int64_t i = 0; i < out.num_hidden_layers; ++i) {
    const Node* layer = find_layer(*layers, i);
    if (layer != nullptr) ++found;
    const Widths own = layer == nullptr ? base : widths_of(*layer, base);
    if (out.slides(i) ? own != base : global && *global != own)
      model::refuse(layer == nullptr ? *layers : *layer,
                    "layer " + std::to_string(i) + " has different widths than other layers of its type",
                    "set the same head_dim and num_key_value_heads for all full-attention layers");
    if (!out.slides(i)) global = own;
  }
  if (found != layers->size()) model::refuse(*layers, "a key is not the number of a layer");
  out.global_head_dim = global->head_dim;
  if (out.attention_k_eq_v)
    out.num_global_key_value_heads = global->of_keys;
  else if (global->of_keys != base.of_keys)
    model::refuse(*layers, "num_key_value_heads of a single layer needs attention_k_eq_v: true");
}

model::KeyGroup<Gemma4Keys> layers_group() {
  model::KeyGroup<Gemma4Keys> out;
  out.table = {{kLayers, "map or null", "null", "",
                "transformers' spelling of global_head_dim and num_global_key_value_heads: a map from the "
                "number of each full-attention layer to its head_dim and num_key_value_heads.",
                ""}};
  out.read = [](const Node& given, Gemma4Keys& keys) {
    read_layers(given, keys);
    if (const std::string complaint = complaint_of_heads(keys); !complaint.empty())
      model::refuse(given, complaint);
  };
  out.write = [](const Gemma4Keys&) { return std::vector<Node::Entry>(); };
  return out;
}

void read_rotary(const Node& keys, Gemma4Keys& out) {
  const Node* all = model::given(keys, kRotary);
  if (all != nullptr && !all->is_map()) model::refuse(*all, "expected a map, got " + all->written());
  if (all != nullptr)
    for (const auto& [type, value] : all->entries())
      if (type != kFullAttention && type != kSlidingAttention)
        model::refuse(value, "expected the keys full_attention and sliding_attention, got the key " + type);
  for (const char* type : {kFullAttention, kSlidingAttention}) {
    const bool slides = type == kSlidingAttention;
    decoder::RotaryKeys& rotary = slides ? out.sliding_rotary : out.rotary;
    decoder::RotaryUse use{"gemma4_text", out.head_width_of(slides), out.max_position_embeddings};
    use.proportional = true;
    const Node* own = all == nullptr ? nullptr : model::given(*all, type);
    if (own != nullptr) rotary = {};
    const Node inner = keys.without(kRotary).without("rope_scaling").without("rope_theta");
    decoder::read_rotary(own == nullptr ? inner : inner.with(kRotary, *own), rotary, use);
    decoder::check_rotary(keys, rotary, use.head_dim);
  }
}

model::KeyGroup<Gemma4Keys> rotary_group() {
  model::KeyGroup<Gemma4Keys> out;
  out.table = {{kRotary, "map or null", "null", "types default, linear, llama3, yarn, proportional",
                "Rotary embeddings per layer type: full_attention and sliding_attention, each a map with "
                "rope_type and rope_theta. The type proportional rotates the first partial_rotary_factor of "
                "the pairs of a head.",
                ""}};
  out.read = read_rotary;
  out.write = [](const Gemma4Keys& keys) -> std::vector<Node::Entry> {
    return {{kRotary, Node::map({{kFullAttention, decoder::rotary_map(keys.rotary, false)},
                                 {kSlidingAttention, decoder::rotary_map(keys.sliding_rotary, false)}})}};
  };
  return out;
}

// Adapts a group of a base's keys to derived keys.
template <class Keys>
model::KeyGroup<Keys> as(model::KeyGroup<Gemma4Keys> group) {
  return {std::move(group.table), std::move(group.read), std::move(group.write)};
}

template <class Keys>
void add_attention(model::ModelKeys<Keys>& keys) {
  keys.field("attention_bias", &Gemma4Keys::attention_bias, "Whether q, k, v and o have biases.")
      .field("attention_k_eq_v", &Gemma4Keys::attention_k_eq_v,
             "In full-attention layers, use the key projections as values.")
      .field("global_head_dim", &Gemma4Keys::global_head_dim, "Head width of full-attention layers.",
             decoder::kSize)
      .field("num_global_key_value_heads", &Gemma4Keys::num_global_key_value_heads,
             "Number of key heads in full-attention layers. null: num_key_value_heads. No effect without "
             "attention_k_eq_v.",
             decoder::kSize)
      .field("sliding_window", &Gemma4Keys::sliding_window,
             "Size of the window of sliding_attention layers in tokens, including the current token.",
             decoder::kSize)
      .field("layer_types", &Gemma4Keys::layer_types,
             "Type of each layer: full_attention or sliding_attention. The last layer must be "
             "full_attention. null: full attention in every sixth layer and the last.")
      .field("use_bidirectional_attention", &Gemma4Keys::use_bidirectional_attention,
             "Bidirectional attention among image tokens, which are not built. vision has no effect.",
             OneOf{{"vision"}})
      .field("num_kv_shared_layers", &Gemma4Keys::num_kv_shared_layers,
             "Number of last layers that reuse the keys and values of the last earlier layer of their type.",
             at_least<int64_t>(0))
      .field("use_double_wide_mlp", &Gemma4Keys::use_double_wide_mlp,
             "Double the MLP width in layers that reuse keys. No effect without num_kv_shared_layers.")
      .rule(complaint_of_layers)
      .rule(complaint_of_sharing);
  keys.group(as<Keys>(layers_group())).group(as<Keys>(rotary_group()));
}

template <class Keys>
model::ModelKeys<Keys> common() {
  auto keys = decoder::common_keys<Keys>();
  decoder::add_head_dim(keys);
  decoder::add_rms_norm(keys);
  decoder::add_dropout(keys);
  add_attention(keys);
  keys.field("hidden_activation", &Gemma4Keys::hidden_activation, "Activation function of the MLP.",
             decoder::activation_words())
      .field("final_logit_softcapping", &Gemma4Keys::final_logit_softcapping,
             "Soft cap of the logits: cap * tanh(logit / cap). null: no cap.", at_least(1e-30))
      .only("rope_theta", Node(), "Set rope_parameters instead.")
      .only("rope_scaling", Node(), "Set rope_parameters instead.")
      .unused("hidden_act", "hidden_activation is used instead.");
  return keys;
}

}  // namespace

Gemma4Keys::Gemma4Keys() {
  vocab_size = 262144, hidden_size = 2304, intermediate_size = 9216, num_hidden_layers = 30;
  num_attention_heads = 8, num_key_value_heads = 4, head_dim = 256, max_position_embeddings = 131072;
  tie_word_embeddings = true, pad_token_id = 0;
  rotary = {.theta = 1e6, .part = 0.25, .of_whole_head = true};
}

Gemma4UnifiedKeys::Gemma4UnifiedKeys() {
  max_position_embeddings = 262144, sliding_window = 1024, hidden_size_per_layer_input = 0;
  use_bidirectional_attention = "vision";
}

bool Gemma4Keys::slides(int64_t layer) const {
  if (layer_types) return (*layer_types)[static_cast<size_t>(layer)] == kSlidingAttention;
  return (layer + 1) % 6 != 0 && layer + 1 != num_hidden_layers;
}

std::optional<int64_t> Gemma4Keys::source_of(int64_t layer) const {
  for (int64_t i = num_hidden_layers - num_kv_shared_layers - 1; i >= 0; --i)
    if (slides(i) == slides(layer)) return i;
  return std::nullopt;
}

int64_t Gemma4Keys::heads_of_keys(bool slides) const {
  const int64_t usual = num_key_value_heads.value_or(num_attention_heads);
  return slides || !attention_k_eq_v ? usual : num_global_key_value_heads.value_or(usual);
}

std::optional<model::ExpertActivation::Kind> expert_activation(const std::string& word) {
  using Kind = model::ExpertActivation::Kind;
  switch (decoder::activation_of(word)) {
    case decoder::Activation::silu:
      return Kind::swiglu;
    case decoder::Activation::gelu:
      return Kind::geglu;
    case decoder::Activation::gelu_tanh:
      return Kind::geglu_tanh;
    default:
      return std::nullopt;
  }
}

model::ModelKeys<Gemma4Keys> gemma4_keys() {
  auto keys = common<Gemma4Keys>();
  keys.field("hidden_size_per_layer_input", &Gemma4Keys::hidden_size_per_layer_input,
             "Width of the per-layer inputs (E2B, E4B). 0: none.", at_least<int64_t>(0))
      .field("enable_moe_block", &Gemma4Keys::enable_moe_block,
             "Add experts in parallel to the MLP of each layer (26B-A4B).")
      .field("num_experts", &Gemma4Keys::num_experts,
             "Number of experts per layer. No effect without enable_moe_block.", Range<int64_t>{1, 65536})
      .field("top_k_experts", &Gemma4Keys::top_k_experts,
             "Number of experts per token. No effect without enable_moe_block.", decoder::kSize)
      .field("moe_intermediate_size", &Gemma4Keys::moe_intermediate_size,
             "Width of an expert. No effect without enable_moe_block.", decoder::kSize)
      .field("vocab_size_per_layer_input", &Gemma4Keys::vocab_size_per_layer_input,
             "Vocabulary size of the per-layer inputs, at least vocab_size.", decoder::kSize)
      .rule(complaint_of_inputs)
      .rule(complaint_of_experts);
  return keys;
}

model::ModelKeys<Gemma4UnifiedKeys> gemma4_unified_keys() {
  return common<Gemma4UnifiedKeys>();
}

}  // namespace heddle::gemma

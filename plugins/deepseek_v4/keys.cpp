// Keys of DeepSeek-V4 that are read together: layer types, compression rates and rotary embeddings.
#include "keys.h"

#include <algorithm>
#include <array>
#include <utility>

namespace heddle::deepseek_v4 {
namespace {

using model::given;
using model::refuse;
using Words = std::vector<std::string>;

constexpr const char* kPart = "partial_rotary_factor";

// Reads a list of words and checks its first `layers` words.
std::optional<Words> words_of(const Node& keys, const char* key, const Words& known, int64_t layers) {
  const Node* list = given(keys, key);
  if (list == nullptr) return std::nullopt;
  if (!list->is_list()) refuse(*list, "expected a list with one word per layer, got " + list->written());
  Words out;
  for (const Node& word : list->items()) {
    if (std::find(known.begin(), known.end(), word.as_text()) == known.end())
      refuse(word, "a layer of type " + word.written() + " is not built; known: " + known[0] + ", " +
                       known[1] + (known.size() > 2 ? ", " + known[2] : ""));
    if (std::ssize(out) < layers) out.push_back(word.as_text());
  }
  if (std::ssize(out) < layers)
    refuse(*list,
           "expected " + std::to_string(layers) + " words, one per layer, got " + std::to_string(out.size()));
  return out;
}

// Reads compress_ratios, the spelling of published files: tokens per compressed entry, 0 without compression.
std::optional<Words> types_of_ratios(const Node& keys, int64_t layers) {
  const Node* list = given(keys, "compress_ratios");
  if (list == nullptr || (list->is_list() && list->size() == 0)) return std::nullopt;
  if (!list->is_list()) refuse(*list, "expected a list with one number per layer, got " + list->written());
  Words out;
  for (const Node& ratio : list->items()) {
    if (std::ssize(out) == layers) break;
    const int64_t value = ratio.as_integer();
    if (value != 0 && value != 4 && value != 128)
      refuse(ratio, "expected 0, 4 or 128, got " + ratio.written());
    out.emplace_back(value == 0 ? kSliding : value == 4 ? kSparse : kHeavy);
  }
  if (std::ssize(out) < layers)
    refuse(*list, "expected " + std::to_string(layers) + " numbers, one per layer, got " +
                      std::to_string(out.size()));
  return out;
}

// Returns two heavily compressed layers, then sparse and heavily compressed layers in turn.
Words default_types(int64_t layers) {
  Words out;
  for (int64_t i = 0; i < layers; ++i) out.emplace_back(i < 2 || i % 2 == 0 ? kHeavy : kSparse);
  return out;
}

void read_rates(const Node& keys, Keys& out) {
  if (const Node* rates = given(keys, "compress_rates")) {
    if (!rates->is_map()) refuse(*rates, "expected a map, got " + rates->written());
    for (const auto& [type, rate] : rates->entries())
      if (type != kSparse && type != kHeavy)
        refuse(rate, "expected the keys " + std::string(kSparse) + " and " + kHeavy + ", got '" + type + "'");
    out.sparse_rate = model::size_or(*rates, kSparse, out.sparse_rate);
    out.heavy_rate = model::size_or(*rates, kHeavy, out.heavy_rate);
  }
  out.sparse_rate = model::size_or(keys, "compress_rate_csa", out.sparse_rate);
  out.heavy_rate = model::size_or(keys, "compress_rate_hca", out.heavy_rate);
}

void read_layers(const Node& keys, Keys& out) {
  const int64_t layers = out.num_hidden_layers;
  out.layer_types = words_of(keys, "layer_types", {kSliding, kSparse, kHeavy}, layers);
  if (!out.layer_types) out.layer_types = types_of_ratios(keys, layers);
  if (!out.layer_types) out.layer_types = default_types(layers);
  read_rates(keys, out);
  out.mlp_layer_types = words_of(keys, "mlp_layer_types", {kHashed, kScored}, layers);
  if (out.mlp_layer_types) return;
  const int64_t hashed = model::integer_or(keys, "num_hash_layers", 3);
  if (hashed < 0)
    refuse(*given(keys, "num_hash_layers"), "expected at least 0, got " + std::to_string(hashed));
  out.mlp_layer_types.emplace();
  for (int64_t i = 0; i < layers; ++i) out.mlp_layer_types->emplace_back(i < hashed ? kHashed : kScored);
}

Node list_of(const Words& words) {
  std::vector<Node> out;
  for (const std::string& word : words) out.push_back(Node::text(word));
  return Node::list(std::move(out));
}

std::vector<Node::Entry> write_layers(const Keys& keys) {
  Node rates =
      Node::map({{kSparse, Node::integer(keys.sparse_rate)}, {kHeavy, Node::integer(keys.heavy_rate)}});
  return {{"layer_types", list_of(*keys.layer_types)},
          {"mlp_layer_types", list_of(*keys.mlp_layer_types)},
          {"compress_rates", std::move(rates)}};
}

// Reads the rotated part of a head from its own key or from the key of older files. Empty: neither key is
// set.
std::optional<Node> part_of(const Node& keys, const Keys& out) {
  if (const Node* part = given(keys, kPart)) return *part;
  const Node* width = given(keys, "qk_rope_head_dim");
  if (width == nullptr) return std::nullopt;
  const int64_t numbers = width->as_integer(), head = out.head_width();
  if (numbers < 2 || numbers % 2 != 0 || numbers > head)
    refuse(*width, "expected an even number from 2 to head_dim, " + std::to_string(head) + ", got " +
                       width->written());
  return Node::real(static_cast<double>(numbers) / static_cast<double>(head));
}

// Returns the keys of one rotary embedding in the form that the library reads.
Node one_of(const Node& keys, const Node& parameters, double theta, const std::optional<Node>& part) {
  Node out = keys.without("rope_scaling").with("rope_theta", Node::real(theta));
  return (part ? out.with(kPart, *part) : out).with("rope_parameters", parameters);
}

bool scales_by_yarn(const Node& parameters) {
  const std::string type =
      model::text_or(parameters, "rope_type", model::text_or(parameters, "type", "default"));
  return type == "yarn";
}

// The heads of an indexer are rotated like those of queries.
void check_index_heads(const Node& keys, const Keys& out) {
  const std::vector<std::string>& types = *out.layer_types;
  const int64_t rotated = out.rotary.dim(out.head_width());
  if (out.index_head_dim >= rotated || std::find(types.begin(), types.end(), kSparse) == types.end()) return;
  const Node* width = given(keys, "index_head_dim");
  refuse(width == nullptr ? keys : *width, "index_head_dim " + std::to_string(out.index_head_dim) +
                                               " is less than the " + std::to_string(rotated) +
                                               " rotated elements of a head");
}

void read_rotary(const Node& keys, Keys& out) {
  const decoder::RotaryUse use{"deepseek_v4", out.head_width(), out.max_position_embeddings,
                               /*partial=*/true};
  const Node* rope = given(keys, "rope_parameters");
  if (rope == nullptr) rope = given(keys, "rope_scaling");
  if (rope != nullptr && !rope->is_map()) refuse(*rope, "expected a map, got " + rope->written());
  const Node *main = rope == nullptr ? nullptr : given(*rope, "main"),
             *compress = rope == nullptr ? nullptr : given(*rope, "compress");
  const double theta = model::real_or(keys, "rope_theta", out.rotary.theta);
  const double compressed = model::real_or(keys, "compress_rope_theta", out.compressed_rotary.theta);
  if (main != nullptr && compress != nullptr) {
    decoder::read_rotary(one_of(keys, *main, theta, Node::real(1)), out.rotary, use);
    decoder::read_rotary(one_of(keys, *compress, compressed, Node::real(1)), out.compressed_rotary, use);
  } else {
    const std::optional<Node> part = part_of(keys, out);
    Node scaling =
        rope == nullptr ? Node::map({}) : rope->without("main").without("compress").without("rope_theta");
    if (scales_by_yarn(scaling) && given(scaling, "attention_factor") == nullptr)
      scaling = scaling.with("attention_factor", Node::real(1));
    decoder::read_rotary(one_of(keys, Node::map({}), theta, part), out.rotary, use);
    decoder::read_rotary(one_of(keys, scaling, compressed, part), out.compressed_rotary, use);
  }
  for (const decoder::RotaryKeys* one : {&out.rotary, &out.compressed_rotary})
    decoder::check_rotary(keys, *one, use.head_dim);
  if (out.rotary.part != out.compressed_rotary.part)
    refuse(*compress, "expected the partial_rotary_factor of main, because both rotary embeddings share it");
  check_index_heads(keys, out);
}

std::vector<Node::Entry> write_rotary(const Keys& keys) {
  Node both = Node::map({{"main", decoder::rotary_map(keys.rotary, /*partial=*/true)},
                         {"compress", decoder::rotary_map(keys.compressed_rotary, /*partial=*/true)}});
  return {{"rope_theta", Node::real(keys.rotary.theta)},
          {"compress_rope_theta", Node::real(keys.compressed_rotary.theta)},
          {kPart, Node::real(keys.rotary.part)},
          {"rope_parameters", std::move(both)}};
}

void check_other_name(const Node& keys, const char* name, const std::string& acts, int64_t value) {
  const Node* other = given(keys, name);
  if (other != nullptr && other->as_integer() != value)
    refuse(*other, "expected " + std::to_string(value) + ", the value of its alias " + acts + ", got " +
                       other->written());
}

}  // namespace

Keys::Keys() {
  vocab_size = 129280, hidden_size = 4096, intermediate_size = 2048, num_hidden_layers = 43;
  num_attention_heads = 64, num_key_value_heads = 1, head_dim = 512;
  max_position_embeddings = 1048576;
  rotary.part = compressed_rotary.part = 0.125;
  compressed_rotary.theta = 160000;
  experts = 256, experts_of_token = 6, routed_scale = 1.5;
}

void fill(Keys& keys) {
  keys.intermediate_size = keys.moe_intermediate_size.value_or(keys.intermediate_size);
  keys.moe_intermediate_size = keys.intermediate_size;
}

std::string complaint(const Keys& keys) {
  if (keys.num_key_value_heads.value_or(1) != 1)
    return "num_key_value_heads is " + std::to_string(*keys.num_key_value_heads) +
           ", but all query heads share one key head";
  if (keys.num_attention_heads > model::kLargestSize / keys.head_width())
    return "num_attention_heads " + std::to_string(keys.num_attention_heads) +
           " of this width is more than " + std::to_string(model::kLargestSize);
  if (keys.num_attention_heads % keys.o_groups != 0)
    return "o_groups " + std::to_string(keys.o_groups) + " does not divide num_attention_heads " +
           std::to_string(keys.num_attention_heads);
  if (keys.experts_of_token > keys.experts)
    return "num_experts_per_tok " + std::to_string(keys.experts_of_token) +
           " is more than n_routed_experts " + std::to_string(keys.experts);
  return "";
}

model::KeyGroup<Keys> layer_keys() {
  model::KeyGroup<Keys> out;
  out.table = {
      {"layer_types", "list of words or null", "null", "",
       "Type of each layer: sliding_attention, compressed_sparse_attention or heavily_compressed_attention. "
       "null: derived from compress_ratios, else two heavily compressed layers, then sparse and heavily "
       "compressed layers in turn. Words beyond the number of layers are ignored.",
       ""},
      {"compress_ratios", "list of integers or null", "null", "0, 4 or 128",
       "Spelling of layer_types in published files: tokens per compressed entry of each layer.", ""},
      {"compress_rates", "map or null", "null", "",
       "Tokens per compressed entry for each layer type. null: 4 in sparse layers, 128 in heavily compressed "
       "layers.",
       ""},
      {"compress_rate_csa", "integer or null", "null", "",
       "Older spelling of compress_rates for sparse layers.", ""},
      {"compress_rate_hca", "integer or null", "null", "",
       "Older spelling of compress_rates for heavily compressed layers.", ""},
      {"mlp_layer_types", "list of words or null", "null", "",
       "MLP type of each layer: hash_moe or moe. null: derived from num_hash_layers.", ""},
      {"num_hash_layers", "integer", "3", "at least 0",
       "Number of layers, from the first, whose experts are looked up by token id.", ""}};
  out.read = read_layers;
  out.write = write_layers;
  return out;
}

// In transformers the alias takes precedence if both keys are set.
model::KeyGroup<Keys> other_names() {
  model::KeyGroup<Keys> out;
  out.table = {{"num_local_experts", "integer or null", "null", "",
                "Alias of n_routed_experts, which it must equal.", ""}};
  out.read = [](const Node& keys, Keys& read) {
    check_other_name(keys, "num_local_experts", "n_routed_experts", read.experts);
    check_other_name(keys, "intermediate_size", "moe_intermediate_size", *read.moe_intermediate_size);
  };
  out.write = [](const Keys&) { return std::vector<Node::Entry>(); };
  return out;
}

model::KeyGroup<Keys> rotary_keys() {
  model::KeyGroup<Keys> out;
  out.table = decoder::rotary_table(Keys().rotary, /*partial=*/true);
  out.table[0].help =
      "Base of the rotary wavelengths in sliding-window layers. It has no effect if all layers are "
      "compressed.";
  out.table[1].help = "Rotary scaling in compressed layers. The default attention_factor of yarn is 1.";
  out.table[2].help =
      "Newer spelling of rope_theta and rope_scaling: one map, or the maps main and compress.";
  out.table[4].help = "Fraction of each head that is rotated, at its end.";
  out.table.push_back({"compress_rope_theta", "number", "160000.0", "above 0",
                       "Base of the rotary wavelengths in compressed layers.", ""});
  out.table.push_back(
      {"qk_rope_head_dim", "integer or null", "null", "",
       "Spelling of partial_rotary_factor in published files: number of rotated elements per head.", ""});
  out.read = read_rotary;
  out.write = write_rotary;
  return out;
}

}  // namespace heddle::deepseek_v4

// Reader and writer of the keys of Step-3.5 that differ per layer.
#include "step3p5_keys.h"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <utility>

namespace heddle::mixtures {
namespace {

using decoder::kFullAttention;
using decoder::kSlidingAttention;
using Slots = std::initializer_list<std::optional<int64_t>*>;

// Gives slots without a value the value of the first slot that has one.
int64_t shared(Slots slots, int64_t otherwise) {
  for (const std::optional<int64_t>* slot : slots)
    if (*slot) {
      otherwise = **slot;
      break;
    }
  for (std::optional<int64_t>* slot : slots)
    if (!*slot) *slot = otherwise;
  return otherwise;
}

// Drops entries beyond the last layer, which belong to multi-token prediction layers.
template <class T>
void cut(std::optional<std::vector<T>>& list, int64_t layers) {
  if (list && static_cast<int64_t>(list->size()) > layers) list->resize(static_cast<size_t>(layers));
}

std::string complaint_of_size(const char* key, size_t size, int64_t layers) {
  if (static_cast<int64_t>(size) == layers) return "";
  return std::string(key) + " has " + std::to_string(size) + " numbers for " + std::to_string(layers) +
         " layers";
}

std::string complaint_of_limits(const char* key, const Limits& limits, int64_t layers) {
  if (!limits) return "";
  for (const std::optional<double>& limit : *limits)
    if (limit && !(*limit >= 0)) return std::string(key) + ": expected numbers of at least 0";
  return complaint_of_size(key, limits->size(), layers);
}

// Reads layers from a text "3,4,5", a list or a number.
std::set<int64_t> layers_of(const Node& given) {
  std::set<int64_t> out;
  if (given.kind() == Node::Kind::integer) return {given.as_integer()};
  if (given.is_list()) {
    for (const Node& one : given.items()) out.insert(one.as_integer());
    return out;
  }
  std::string digits;
  for (const char letter : given.as_text() + ",") {
    if (letter >= '0' && letter <= '9') {
      digits += letter;
    } else if (letter == ',') {
      if (digits.size() > 9) model::refuse(given, "expected layer numbers, got " + given.written());
      if (!digits.empty()) out.insert(std::stoll(digits));
      digits.clear();
    } else if (letter != ' ') {
      model::refuse(given, "expected layer numbers separated by commas, got " + given.written());
    }
  }
  return out;
}

void read_experts(const Node& given, StepKeys& keys) {
  const Node* named = model::given(given, "moe_layers_enum");
  if (keys.mlp_layer_types) return;
  constexpr int64_t kFirst = 3;
  const std::set<int64_t> layers = named == nullptr ? std::set<int64_t>{} : layers_of(*named);
  keys.mlp_layer_types = words_of(keys.num_hidden_layers, [&](int64_t layer) {
    return named == nullptr ? layer >= kFirst : layers.count(layer) > 0;
  });
}

// Reads the settings of sliding_attention layers.
void read_other_setting(const Node& given, StepKeys& keys) {
  const Node* setting = model::given(given, "attention_other_setting");
  if (setting == nullptr) return;
  if (!setting->is_map()) model::refuse(*setting, "expected a map, got " + setting->written());
  const int64_t heads = model::size_or(*setting, "num_attention_heads", keys.num_attention_heads);
  if (keys.num_sliding_attention_heads && *keys.num_sliding_attention_heads != heads)
    model::refuse(*setting, "num_attention_heads " + std::to_string(heads) +
                                " of attention_other_setting differs from num_sliding_attention_heads " +
                                std::to_string(*keys.num_sliding_attention_heads));
  const std::pair<const char*, int64_t> kAlike[] = {{"num_attention_groups", *keys.num_attention_groups},
                                                    {"head_dim", keys.head_width()},
                                                    {"true_head_dim", keys.head_width()}};
  for (const auto& [key, value] : kAlike)
    if (model::size_or(*setting, key, value) != value)
      model::refuse(*setting, std::string(key) + " of attention_other_setting must be " +
                                  std::to_string(value) + ": transformers has one for all");
  keys.num_sliding_attention_heads = heads;
}

void settle_sliding_heads(const Node& given, StepKeys& keys) {
  const int64_t heads = keys.num_sliding_attention_heads.value_or(keys.num_attention_heads);
  keys.num_sliding_attention_heads = heads;
  const int64_t groups = *keys.num_attention_groups;
  if (heads % groups != 0 || heads > model::kLargestSize / keys.head_width())
    model::refuse(given, "sliding_attention layers have " + std::to_string(heads) +
                             " heads, which is not a multiple of num_attention_groups " +
                             std::to_string(groups));
}

// Reads the value of all layers of a type from a number or a list. `otherwise` if none is given.
double number_of(const Node* numbers, const StepKeys& keys, const char* type, double otherwise) {
  if (numbers == nullptr) return otherwise;
  if (!numbers->is_list()) return numbers->as_real();
  if (static_cast<int64_t>(numbers->size()) < keys.num_hidden_layers)
    model::refuse(*numbers, complaint_of_size("the list", numbers->size(), keys.num_hidden_layers));
  std::optional<double> out;
  for (int64_t layer = 0; layer < keys.num_hidden_layers; ++layer) {
    if (keys.slides(layer) != (type == std::string(kSlidingAttention))) continue;
    const double one = numbers->items()[static_cast<size_t>(layer)].as_real();
    if (out && *out != one)
      model::refuse(*numbers, std::string("layers of type ") + type +
                                  " with different rotations are not built, as in transformers: " +
                                  std::to_string(*out) + " and " + std::to_string(one));
    out = one;
  }
  return out.value_or(otherwise);
}

bool is_nested(const Node& parameters) {
  return model::given(parameters, kFullAttention) != nullptr ||
         model::given(parameters, kSlidingAttention) != nullptr;
}

void read_rotary_of_layers(const Node& given, StepKeys& keys) {
  if (const Node* all = model::given(given, "rope_parameters"); all != nullptr && is_nested(*all))
    return read_rotary_of_types(given, keys, "step3p5", 1);
  const Node* theta = model::given(given, "rope_theta");
  const Node* parts = model::given(given, "partial_rotary_factors");
  const Node* scaling = model::given(given, "rope_scaling");
  const Node rest = given.without("rope_scaling").without("rope_theta");
  for (const char* type : {kFullAttention, kSlidingAttention}) {
    const bool full = type == kFullAttention;
    Node map = full && scaling != nullptr ? *scaling : Node::map({});
    if (!map.is_map()) model::refuse(map, "expected a map, got " + map.written());
    map = map.with("rope_theta", Node::real(number_of(theta, keys, type, 10000)))
              .with("partial_rotary_factor", Node::real(number_of(parts, keys, type, 1)));
    decoder::RotaryKeys& rotary = full ? keys.rotary : keys.sliding_rotary;
    rotary = {};
    decoder::read_rotary(rest.with("rope_parameters", map), rotary,
                         {"step3p5", keys.head_width(), keys.max_position_embeddings, true});
    decoder::check_rotary(given, rotary, keys.head_width());
  }
}

// Returns a list with one value per layer.
template <class Of>
Node list_of(const StepKeys& keys, Of of) {
  std::vector<Node> out;
  for (int64_t layer = 0; layer < keys.num_hidden_layers; ++layer)
    out.push_back(Node::real(of(keys.slides(layer) ? keys.sliding_rotary : keys.rotary)));
  return Node::list(std::move(out));
}

std::vector<Node::Entry> rotary_entries_of_layers(const StepKeys& keys) {
  std::vector<Node::Entry> out = {
      {"rope_parameters", rotary_of_types(keys)},
      {"rope_theta", list_of(keys, [](const decoder::RotaryKeys& one) { return one.theta; })},
      {"partial_rotary_factors", list_of(keys, [](const decoder::RotaryKeys& one) { return one.part; })}};
  if (keys.rotary.scaling.kind != RotaryScaling::Kind::none)
    out.emplace_back("rope_scaling", decoder::rotary_map(keys.rotary, false).without("rope_theta"));
  return out;
}

std::vector<Node::Entry> layer_entries(const StepKeys& keys) {
  std::string experts;
  for (int64_t layer = 0; layer < keys.num_hidden_layers; ++layer)
    if (keys.sparse(layer)) experts += (experts.empty() ? "" : ",") + std::to_string(layer);
  const auto number = [](int64_t value) { return Node::integer(value); };
  return {{"moe_layers_enum", Node::text(experts)},
          {"attention_other_setting",
           Node::map({{"attention_type", Node::text(kSlidingAttention)},
                      {"num_attention_heads", number(*keys.num_sliding_attention_heads)},
                      {"num_attention_groups", number(*keys.num_attention_groups)},
                      {"head_dim", number(keys.head_width())}})}};
}

}  // namespace

StepKeys::StepKeys() {
  vocab_size = 128815, intermediate_size = 11264, num_hidden_layers = 45, num_attention_heads = 64;
  head_dim = 128, max_position_embeddings = 128000, rms_norm_eps = 1e-5, pad_token_id = 1;
  expert_width = 1280;
}

void fill_step(StepKeys& keys) {
  const int64_t layers = keys.num_hidden_layers;
  cut(keys.layer_types, layers);
  cut(keys.mlp_layer_types, layers);
  cut(keys.use_rope_layers, layers);
  cut(keys.swiglu_limits, layers);
  cut(keys.swiglu_limits_shared, layers);
  shared({&keys.num_attention_groups, &keys.num_key_value_heads}, 8);
  keys.experts = shared({&keys.moe_num_experts, &keys.n_routed_experts, &keys.num_local_experts}, 288);
  keys.experts_of_token = shared({&keys.moe_top_k, &keys.num_experts_per_tok}, 8);
  shared({&keys.share_expert_dim, &keys.share_expert_dims}, 1280);
  if (keys.use_rope_layers && keys.use_rope_layers->empty()) keys.use_rope_layers.reset();
}

std::string complaint_of_step(const StepKeys& keys) {
  const auto differ = [](const std::optional<int64_t>& a, const std::optional<int64_t>& b) {
    return *a != *b;
  };
  if (differ(keys.num_attention_groups, keys.num_key_value_heads))
    return "num_attention_groups and num_key_value_heads are two names of one number but differ: set only "
           "one of them";
  if (differ(keys.moe_num_experts, keys.n_routed_experts) ||
      differ(keys.moe_num_experts, keys.num_local_experts))
    return "moe_num_experts, n_routed_experts and num_local_experts are names of one number but differ: set "
           "only one of "
           "them";
  if (differ(keys.moe_top_k, keys.num_experts_per_tok))
    return "moe_top_k and num_experts_per_tok are two names of one number but differ: set only one of them";
  if (differ(keys.share_expert_dim, keys.share_expert_dims))
    return "share_expert_dim and share_expert_dims are two names of one number but differ: set only one of "
           "them";
  if (keys.use_rope_layers && std::find(keys.use_rope_layers->begin(), keys.use_rope_layers->end(), false) !=
                                  keys.use_rope_layers->end())
    return "use_rope_layers: layers without rotation are not supported by transformers";
  const std::vector<std::string> full = {kFullAttention};
  if (keys.yarn_only_types && *keys.yarn_only_types != full)
    return "yarn_only_types: rope_scaling applies only to full_attention layers, as in transformers";
  const int64_t layers = keys.num_hidden_layers;
  std::string limits = complaint_of_limits("swiglu_limits", keys.swiglu_limits, layers);
  return limits.empty() ? complaint_of_limits("swiglu_limits_shared", keys.swiglu_limits_shared, layers)
                        : limits;
}

model::KeyGroup<StepKeys> published_layers() {
  model::KeyGroup<StepKeys> out;
  out.table = {
      {"moe_layers_enum", "str, list or int", "null", "layers",
       "Layers with experts, such as \"3,4,5\", if mlp_layer_types is absent. null: all layers from 3 on.",
       ""},
      {"attention_other_setting", "map or null", "null", "",
       "Settings of sliding_attention layers: num_attention_heads. num_attention_groups and head_dim must "
       "equal those of full_attention layers.",
       ""},
      {"num_nextn_predict_layers", "int", "0", "", "Alias of num_mtp_layers.", ""}};
  out.read = [](const Node& given, StepKeys& keys) {
    keys.num_mtp_layers = model::integer_or(given, "num_nextn_predict_layers", keys.num_mtp_layers);
    read_experts(given, keys);
    read_other_setting(given, keys);
    settle_sliding_heads(given, keys);
  };
  out.write = layer_entries;
  return out;
}

model::KeyGroup<StepKeys> rotary_of_layers() {
  model::KeyGroup<StepKeys> out;
  out.table = {
      rotary_of_types_info(),
      {"rope_theta", "number or list", "10000.0", "above 0",
       "Base of the rotary wavelengths, for each layer or for all, if rope_parameters is absent.", ""},
      {"partial_rotary_factors", "list or null", "null", "above 0, to 1.0",
       "Fraction of each head that is rotated, per layer. null: 1.", ""},
      {"rope_scaling", "map or null", "null", "types default, linear, llama3, yarn",
       "Scaling of the rotary embedding in full_attention layers: rope_type and its parameters.", ""}};
  out.read = read_rotary_of_layers;
  out.write = rotary_entries_of_layers;
  return out;
}

}  // namespace heddle::mixtures

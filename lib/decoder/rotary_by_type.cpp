// Separate rotary embeddings of layers with sliding-window and with full attention.
#include <string>
#include <utility>
#include <vector>

#include "heddle/decoder/family.h"

namespace heddle::decoder {
namespace {

constexpr const char* kParameters = "rope_parameters";
constexpr const char* kScaling = "rope_scaling";
constexpr const char* kTheta = "rope_theta";
constexpr const char* kLocalTheta = "rope_local_base_freq";

// Keys that transformers writes next to the two maps and that have no effect.
bool says_nothing(const std::string& key, const Node& value) {
  return value.is_null() ||
         (key == "rope_type" && value.kind() == Node::Kind::text && value.as_text() == "default");
}

// Returns the map for one layer type in rope_parameters; null: none.
const Node* parameters_of(const Node& keys, const char* type) {
  const Node* all = model::given(keys, kParameters);
  if (all == nullptr) return nullptr;
  if (!all->is_map()) model::refuse(*all, "expected a map, got " + all->written());
  for (const auto& [key, value] : all->entries())
    if (key != kFullAttention && key != kSlidingAttention && !says_nothing(key, value))
      model::refuse(value,
                    "expected a map for full_attention and one for sliding_attention, got the key " + key,
                    "set rope_theta and rope_local_base_freq, or the two maps");
  return model::given(*all, type);
}

}  // namespace

void read_rotary_by_type(const Node& keys, RotaryKeys& rotary, RotaryKeys& sliding, const RotaryUse& use) {
  const Node plain = keys.without(kParameters).without(kScaling);
  Node full = plain, local = plain.without(kTheta);
  if (const Node* own = parameters_of(keys, kFullAttention)) full = full.with(kParameters, *own);
  if (const Node* scaling = model::given(keys, kScaling)) {
    const Node* own = full.find(kParameters);
    Node both = own == nullptr ? *scaling : *own;
    if (own != nullptr && scaling->is_map())
      for (const auto& [key, value] : scaling->entries()) both = both.with(key, value);
    full = full.with(kParameters, both);
  }
  if (const Node* own = parameters_of(keys, kSlidingAttention)) local = local.with(kParameters, *own);
  if (const Node* theta = model::given(keys, kLocalTheta)) local = local.with(kTheta, *theta);
  read_rotary(full, rotary, use);
  read_rotary(local, sliding, use);
}

std::vector<Node::Entry> rotary_entries_by_type(const RotaryKeys& rotary, const RotaryKeys& sliding) {
  const bool scales = rotary.scaling.kind != RotaryScaling::Kind::none;
  const Node full = rotary_map(rotary, false);
  return {
      {kTheta, Node::real(rotary.theta)},
      {kLocalTheta, Node::real(sliding.theta)},
      {kScaling, scales ? full : Node()},
      {kParameters, Node::map({{kFullAttention, full}, {kSlidingAttention, rotary_map(sliding, false)}})}};
}

std::vector<FieldInfo> rotary_table_by_type(const RotaryKeys& rotary, const RotaryKeys& sliding) {
  std::vector<FieldInfo> out = rotary_table(rotary, false);
  out[0].help = "Base of the rotary embedding's wavelengths in layers with full attention.";
  out[1].help = "Scaling of that rotary embedding: rope_type and its factors.";
  out[2].help = "Newer form: full_attention and sliding_attention, each a map with rope_type and rope_theta.";
  out.push_back({kLocalTheta, "number", Node::real(sliding.theta).written(), "above 0",
                 "Base of the rotary embedding's wavelengths in layers with sliding-window attention.", ""});
  return out;
}

}  // namespace heddle::decoder

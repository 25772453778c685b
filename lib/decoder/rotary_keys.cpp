// Rotary embedding of a Hugging Face configuration: reads and writes its keys.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/decoder/family.h"

namespace heddle::decoder {
namespace {

using model::integer_or;
using model::real_or;
using model::refuse;
using model::text_or;

// Reads partial_rotary_factor from the keys or the rotary parameters.
void read_part(const Node& keys, RotaryKeys& rotary, const RotaryUse& use) {
  const Node* part = model::given(keys, "partial_rotary_factor");
  if (part == nullptr) return;
  rotary.part = part->as_real();
  if (rotary.part == 1.0) return;
  if (!use.partial)
    refuse(*part,
           "a model of type " + use.model_type +
               " rotates whole heads, so it does not take a partial factor, got " + part->written(),
           "remove the key");
  const int64_t dim = rotary.dim(use.head_dim);
  if (!(rotary.part > 0 && rotary.part < 1) || dim < 2 || dim % 2 != 0)
    refuse(*part, "a head of " + std::to_string(use.head_dim) +
                      " elements needs an even number of rotated elements, at least 2, got " +
                      part->written());
}

double positive(const Node& parameters, std::string_view key) {
  const Node* node = parameters.find(key);
  if (node == nullptr || node->is_null())
    refuse(parameters, "rope type " + text_or(parameters, "rope_type", text_or(parameters, "type", "")) +
                           " needs " + std::string(key));
  if (!(node->as_real() > 0) || !std::isfinite(node->as_real()))
    refuse(*node, "expected a number above 0, got " + node->written());
  return node->as_real();
}

int64_t original_positions(const Node& keys, const Node& parameters, const RotaryUse& use) {
  constexpr const char* kKey = "original_max_position_embeddings";
  return model::size_or(keys, kKey, model::size_or(parameters, kKey, use.max_positions));
}

void read_llama3(const Node& keys, const Node& parameters, RotaryKeys& rotary, const RotaryUse& use) {
  RotaryScaling& scaling = rotary.scaling;
  scaling.kind = RotaryScaling::Kind::llama3;
  scaling.factor = positive(parameters, "factor");
  scaling.low_freq_factor = positive(parameters, "low_freq_factor");
  scaling.high_freq_factor = positive(parameters, "high_freq_factor");
  if (scaling.high_freq_factor <= scaling.low_freq_factor)
    refuse(*parameters.find("high_freq_factor"),
           "expected more than low_freq_factor, got " + parameters.find("high_freq_factor")->written());
  scaling.original_positions = original_positions(keys, parameters, use);
}

// transformers treats a 0 of these keys as absent.
double positive_or(const Node& parameters, std::string_view key, double otherwise) {
  const double value = real_or(parameters, key, 0);
  if (value == 0) return otherwise;
  return positive(parameters, key);
}

void read_yarn(const Node& keys, const Node& parameters, RotaryKeys& rotary, const RotaryUse& use) {
  RotaryScaling& scaling = rotary.scaling;
  scaling.kind = RotaryScaling::Kind::yarn;
  scaling.factor = positive(parameters, "factor");
  scaling.beta_fast = positive_or(parameters, "beta_fast", 32);
  scaling.beta_slow = positive_or(parameters, "beta_slow", 1);
  scaling.truncate = model::boolean_or(parameters, "truncate", true);
  if (model::given(parameters, "attention_factor") != nullptr)
    scaling.attention_factor = positive(parameters, "attention_factor");
  scaling.mscale = positive_or(parameters, "mscale", 0);
  scaling.mscale_all_dim = positive_or(parameters, "mscale_all_dim", 0);
  scaling.original_positions = original_positions(keys, parameters, use);
}

// The part counts pairs, so any head with an even width allows it.
void read_proportional(const Node& parameters, RotaryKeys& rotary) {
  rotary.of_whole_head = true;
  rotary.part = real_or(parameters, "partial_rotary_factor", 1);
  if (!(rotary.part >= 0 && rotary.part <= 1)) {
    const Node& part = *parameters.find("partial_rotary_factor");
    refuse(part, "expected a number from 0 to 1, got " + part.written());
  }
  if (model::given(parameters, "factor") == nullptr) return;
  rotary.scaling.kind = RotaryScaling::Kind::linear;
  rotary.scaling.factor = positive(parameters, "factor");
}

// Keys of transformers' rope types, including types that are not built.
const std::vector<std::string>& known_parameters() {
  static const std::vector<std::string> kKnown = {"rope_type",
                                                  "type",
                                                  "rope_theta",
                                                  "factor",
                                                  "original_max_position_embeddings",
                                                  "max_position_embeddings",
                                                  "attention_factor",
                                                  "beta_fast",
                                                  "beta_slow",
                                                  "truncate",
                                                  "mscale",
                                                  "mscale_all_dim",
                                                  "short_factor",
                                                  "long_factor",
                                                  "short_mscale",
                                                  "long_mscale",
                                                  "low_freq_factor",
                                                  "high_freq_factor",
                                                  "partial_rotary_factor",
                                                  "llama_4_scaling_beta",
                                                  "mrope_section",
                                                  "mrope_interleaved",
                                                  "alpha"};
  return kKnown;
}

void read_parameters(const Node& keys, const Node& parameters, RotaryKeys& rotary, const RotaryUse& use) {
  if (!parameters.is_map()) refuse(parameters, "expected a map with rope_type, got " + parameters.written());
  refuse_misspelt(parameters, known_parameters());
  for (const auto& [key, value] : parameters.entries())
    if (value.is_map()) refuse(value, "separate rotary parameters per layer type are not built");
  const std::string type = text_or(parameters, "rope_type", text_or(parameters, "type", "default"));
  if (type != "proportional") read_part(parameters, rotary, use);
  rotary.theta = real_or(parameters, "rope_theta", rotary.theta);
  rotary.scaling = {};
  rotary.of_whole_head = false;
  rotary.query_beta = use.scaled_queries ? real_or(parameters, "llama_4_scaling_beta", 0) : 0;
  if (rotary.query_beta != 0) rotary.scaling.original_positions = original_positions(keys, parameters, use);
  if (type == "default") return;
  if (type == "proportional" && use.proportional) {
    read_proportional(parameters, rotary);
  } else if (type == "linear") {
    rotary.scaling.kind = RotaryScaling::Kind::linear;
    rotary.scaling.factor = positive(parameters, "factor");
  } else if (type == "llama3") {
    read_llama3(keys, parameters, rotary, use);
  } else if (type == "yarn") {
    read_yarn(keys, parameters, rotary, use);
  } else {
    refuse(parameters, "rope type '" + type + "' is not built; known: default, linear, llama3, yarn" +
                           (use.proportional ? ", proportional" : ""));
  }
}

// Checks the family's default partial_rotary_factor against the head.
void check_default_part(const Node& keys, const RotaryKeys& rotary, const RotaryUse& use) {
  const int64_t dim = rotary.of_whole_head ? use.head_dim : rotary.dim(use.head_dim);
  if (dim >= 2 && dim % 2 == 0) return;
  const Node* head_dim = model::given(keys, "head_dim");
  const Node& at = head_dim != nullptr ? *head_dim : keys;
  if (!use.partial)
    refuse(at, "the rotary embedding needs an even head_dim, got " + std::to_string(use.head_dim));
  std::string factor = std::to_string(rotary.part);
  factor.erase(factor.find_last_not_of('0') + 1);
  refuse(at,
         "a head of " + std::to_string(use.head_dim) +
             " elements needs an even number of rotated elements, at least 2, but " + use.model_type +
             " rotates " + factor + " of them by default",
         "set partial_rotary_factor, or another head_dim");
}

}  // namespace

void read_rotary(const Node& keys, RotaryKeys& rotary, const RotaryUse& use) {
  rotary.theta = real_or(keys, "rope_theta", rotary.theta);
  read_part(keys, rotary, use);
  const Node* parameters = nullptr;
  for (const std::string_view key : {"rope_parameters", "rope_scaling"})
    if (const Node* found = keys.find(key);
        found != nullptr && !found->is_null() && !(found->is_map() && found->size() == 0))
      parameters = found;
  if (parameters != nullptr) read_parameters(keys, *parameters, rotary, use);
  check_default_part(keys, rotary, use);
  if (!(rotary.theta > 0)) refuse(keys, "expected a rope_theta above 0, got " + std::to_string(rotary.theta));
}

void check_rotary(const Node& keys, const RotaryKeys& rotary, int64_t head_dim) {
  const int64_t dim = rotary.of_whole_head ? head_dim : rotary.dim(head_dim);
  const at::Tensor frequencies = model::rotary_frequencies(dim, rotary.theta, rotary.scaling);
  const float* first = frequencies.const_data_ptr<float>();
  if (std::all_of(first, first + frequencies.numel(), [](float value) { return std::isfinite(value); }) &&
      std::isfinite(model::rotary_factor(rotary.scaling)))
    return;
  char theta[32];
  std::snprintf(theta, sizeof theta, "%g", rotary.theta);
  const bool scales = rotary.scaling.kind != RotaryScaling::Kind::none;
  refuse(keys,
         std::string("the rotary embedding is not finite with rope_theta ") + theta +
             (scales ? " and the factors of its rope type" : ""),
         "rope_theta is the base of the wavelengths, 10000 in most models");
}

namespace {

using ScalingKind = RotaryScaling::Kind;
using Entries = std::vector<Node::Entry>;

void add_yarn(const RotaryScaling& scaling, Entries& out) {
  out.emplace_back("beta_fast", Node::real(scaling.beta_fast));
  out.emplace_back("beta_slow", Node::real(scaling.beta_slow));
  out.emplace_back("truncate", Node::boolean(scaling.truncate));
  const std::pair<const char*, double> kOthers[] = {{"attention_factor", scaling.attention_factor},
                                                    {"mscale", scaling.mscale},
                                                    {"mscale_all_dim", scaling.mscale_all_dim}};
  for (const auto& [key, value] : kOthers)
    if (value > 0) out.emplace_back(key, Node::real(value));
}

void add_factors(const RotaryScaling& scaling, Entries& out) {
  if (scaling.kind == ScalingKind::none) return;
  out.emplace_back("factor", Node::real(scaling.factor));
  if (scaling.kind == ScalingKind::linear) return;
  out.emplace_back("original_max_position_embeddings", Node::integer(scaling.original_positions));
  if (scaling.kind == ScalingKind::yarn) return add_yarn(scaling, out);
  out.emplace_back("low_freq_factor", Node::real(scaling.low_freq_factor));
  out.emplace_back("high_freq_factor", Node::real(scaling.high_freq_factor));
}

const char* scaling_word(ScalingKind kind) {
  return kind == ScalingKind::none     ? "default"
         : kind == ScalingKind::linear ? "linear"
         : kind == ScalingKind::yarn   ? "yarn"
                                       : "llama3";
}

}  // namespace

Node rotary_map(const RotaryKeys& rotary, bool partial) {
  const char* type = rotary.of_whole_head ? "proportional" : scaling_word(rotary.scaling.kind);
  Entries out = {{"rope_type", Node::text(type)}, {"rope_theta", Node::real(rotary.theta)}};
  add_factors(rotary.scaling, out);
  if (rotary.query_beta != 0) {
    out.emplace_back("llama_4_scaling_beta", Node::real(rotary.query_beta));
    if (rotary.scaling.kind == ScalingKind::none || rotary.scaling.kind == ScalingKind::linear)
      out.emplace_back("original_max_position_embeddings", Node::integer(rotary.scaling.original_positions));
  }
  if (partial || rotary.of_whole_head) out.emplace_back("partial_rotary_factor", Node::real(rotary.part));
  return Node::map(std::move(out));
}

Entries rotary_entries(const RotaryKeys& rotary, bool partial) {
  const Node map = rotary_map(rotary, partial);
  Entries out = {{"rope_theta", Node::real(rotary.theta)},
                 {"rope_scaling", rotary.scaling.kind == ScalingKind::none ? Node() : map},
                 {"rope_parameters", map}};
  if (partial) out.emplace_back("partial_rotary_factor", Node::real(rotary.part));
  return out;
}

std::vector<FieldInfo> rotary_table(const RotaryKeys& defaults, bool partial) {
  const std::string types = "types default, linear, llama3, yarn";
  std::vector<FieldInfo> out = {
      {"rope_theta", "number", Node::real(defaults.theta).written(), "above 0",
       "Base of the rotary embedding's wavelengths.", ""},
      {"rope_scaling", "map or null", "null", types,
       "Scaling of the rotary embedding: rope_type and its factors.", ""},
      {"rope_parameters", "map or null", "null", types,
       "Newer form of rope_scaling, which includes rope_theta.", ""},
      {"original_max_position_embeddings", "integer or null", "null", "",
       "Number of positions of the original training, for the rope types llama3 and yarn. Ignored by "
       "other types.",
       ""}};
  if (partial)
    out.push_back({"partial_rotary_factor", "number", Node::real(defaults.part).written(), "above 0, to 1.0",
                   "Share of each head to rotate, from its first element on.", ""});
  return out;
}

}  // namespace heddle::decoder

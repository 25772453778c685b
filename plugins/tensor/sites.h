// The modules of a model with their paths, the styles that a plan gives them, and checks of one module alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/sdk.h"
#include "plan.h"

namespace heddle::tensor {

// One module. `parent` is its index in the list; kNone: the root of a unit.
struct Site {
  static constexpr size_t kNone = static_cast<size_t>(-1);
  std::string path;  // "layers.3.mlp.up"
  Module* module;
  size_t parent = kNone;
  std::vector<size_t> children;
  std::optional<Style> style;
  std::string where;        // of the rule that gave the style
  bool all_tokens = false;  // under sequence parallelism: it or a module around it gathers the token rows
};
using Sites = std::vector<Site>;

// Every module of every unit. Throws Error{input} for a foreign unit.
Sites find_sites(Units& units);

// Whether a pattern may have no match: a stage is only a part of the model.
enum class Extent { whole_model, stage };

// Gives every site the style of the rule that matches it. Throws Error{config}: a pattern that matches
// nothing (with the nearest path), two styles for one module.
void give_styles(Sites& sites, const Rules& rules, Extent extent);
// For the model's own plan: a mixer whose heads the ranks do not divide stays whole.
void leave_whole(Sites& sites, int ranks);

// The rules for this model: the plan of the YAML, else that of the units. Throws Error{config} with an
// example of a plan.
Rules choose_rules(const Units& units, const Node& tp_plan);

// Throws Error{config} at the rule that gave the style, or at the plan.
[[noreturn]] void refuse(const Site& site, const std::string& what, const std::string& hint);

inline bool is(const Site& site, Style style) {
  return site.style == style;
}
// colwise or rowwise: hidden states stay split behind it.
bool stays_split(const Site& site);
inline Role role_of(const Site& site) {
  return site.module->traits().role;
}

// The style fits the module's role. Throws Error{config}.
void check_style(const Site& site, bool sequence_parallel);

// It holds a router or experts, which choose by tokens and count them.
bool is_mixture(const Sites& sites, const Site& site);

// Parameters of its own that meet each token alone: on rows of tokens their gradients are parts of a sum.
bool has_own_rows(const Site& site);

// Under sequence parallelism, for a module on this rank's rows: what it does with its parameters is known.
// `has_layers`: it holds linear layers; `in_block`: a module around it does. Throws Error{config}.
void check_known(const Site& site, bool has_layers, bool in_block);

}  // namespace heddle::tensor

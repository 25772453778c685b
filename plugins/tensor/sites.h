// Modules of a model with their paths, the styles that a plan gives them, and checks of single modules.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/sdk.h"
#include "plan.h"

namespace heddle::tensor {

// A module. `parent` is its index in the list. kNone: the module is the root of a unit.
struct Site {
  static constexpr size_t kNone = static_cast<size_t>(-1);
  std::string path;  // "layers.3.mlp.up"
  Module* module;
  size_t parent = kNone;
  std::vector<size_t> children;
  std::optional<Style> style;
  std::string where;        // location of the rule that gave the style
  bool all_tokens = false;  // under sequence parallelism: this module or one around it gathers the token rows
};
using Sites = std::vector<Site>;

// Returns every module of every unit. Throws Error{input} for a foreign unit.
Sites find_sites(Units& units);

// Whether a pattern may match nothing, because a stage is only a part of the model.
enum class Extent { whole_model, stage };

// Gives every site the style of the rule that matches it. Throws Error{config} for a pattern that matches
// nothing (naming the nearest path), and for two styles of one module.
void give_styles(Sites& sites, const Rules& rules, Extent extent);
// For the model's own plan: leaves a mixer whole if the ranks do not divide its heads.
void leave_whole(Sites& sites, int ranks);

// Returns the rules for this model: the plan in the YAML, else that of the units. Throws Error{config} with
// an example of a plan.
Rules choose_rules(const Units& units, const Node& tp_plan);

// Throws Error{config} at the rule that gave the style, or at the plan.
[[noreturn]] void refuse(const Site& site, const std::string& what, const std::string& hint);

inline bool is(const Site& site, Style style) {
  return site.style == style;
}
// Returns true for colwise and rowwise: the layer's hidden states are split on its other side.
bool stays_split(const Site& site);
inline Role role_of(const Site& site) {
  return site.module->traits().role;
}

// Checks that the style fits the module's role. Throws Error{config}.
void check_style(const Site& site, bool sequence_parallel);

// Returns whether the module contains a router or experts, which select and count by tokens.
bool is_mixture(const Sites& sites, const Site& site);

// Returns whether the module has parameters that apply to each token separately. On token rows their
// gradients are partial sums.
bool has_own_rows(const Site& site);

// Checks, under sequence parallelism, that a module on this rank's rows declares its use of parameters.
// `has_layers`: it contains linear layers. `in_block`: a module around it does. Throws Error{config}.
void check_known(const Site& site, bool has_layers, bool in_block);

}  // namespace heddle::tensor

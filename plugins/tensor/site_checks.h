// Facts of a module of a model, and checks of one module alone.
#pragma once

#include <string>

#include "heddle/sdk.h"
#include "sites.h"

namespace heddle::tensor {

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

// Plan of tensor parallelism: patterns of module paths, and the style of the modules that they match.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/sdk.h"

namespace heddle::tensor {

// Styles of the plans of Hugging Face and PyTorch.
enum class Style {
  colwise,            // outputs are split and stay split
  rowwise,            // inputs are split, outputs are summed
  colwise_rep,        // outputs are split, then gathered
  rowwise_rep,        // whole inputs are split, outputs are summed; an embedding splits its vocabulary
  sequence_parallel,  // computes on this rank's token rows
  replicated,         // whole on every rank
  replicated_with_grad_allreduce  // whole, applied to some heads: its gradient is summed
};

std::string style_name(Style style);

// Pattern and style. The pattern is a path whose segments may contain `*` (any characters except a dot) and
// `?` (one such character).
struct Rule {
  std::string pattern;
  Style style;
  std::string where;  // location, for messages
};
using Rules = std::vector<Rule>;

// Throws Error{config} "Unknown parallel style: ..." at the entry, with the nearest style.
Rules read_rules(const Node& map);

// Returns the plan of the units. Empty if they have none. Throws Error{config} for an unknown style in it.
Rules rules_of(const Units& units);

bool matches(const std::string& pattern, const std::string& path);

}  // namespace heddle::tensor

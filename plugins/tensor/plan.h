// A plan of tensor parallelism: patterns of module paths and what happens to the modules they match.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/sdk.h"

namespace heddle::tensor {

// The styles of Hugging Face's and PyTorch's plans.
enum class Style {
  colwise,            // outputs are split, and stay so
  rowwise,            // inputs come split, outputs are summed
  colwise_rep,        // outputs are split and gathered
  rowwise_rep,        // whole inputs are split, outputs are summed; an embedding splits its vocabulary
  sequence_parallel,  // computes on this rank's token rows
  replicated,         // whole on every rank
  replicated_with_grad_allreduce  // whole, on parts of heads: its gradient is summed
};

std::string word_of(Style style);

// A pattern is a path whose segments may contain `*` (any characters except a dot) and `?` (one of them).
struct Rule {
  std::string pattern;
  Style style;
  std::string where;  // its location, for messages
};
using Rules = std::vector<Rule>;

// Throws Error{config} "Unknown parallel style: ..." at the entry, with the nearest style.
Rules read_rules(const Node& map);

// The plan of the units; empty: none. Throws Error{config} for an unknown style in it.
Rules rules_of(const Units& units);

bool matches(const std::string& pattern, const std::string& path);

}  // namespace heddle::tensor

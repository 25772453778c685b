// Parameters that several stages of a pipeline use: a tied head, the embedding of prediction heads.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "heddle/parallel/build.h"

namespace heddle::parallel {

// Each of its stages holds a copy. `given`: make_units() gave it values, so it is not on meta.
struct TiedParameter {
  std::string name;
  std::vector<int> stages;  // ascending, at least two
  bool given = false;
  bool trains = false;
};

// Returns the parameters that several stages use, equal on every rank.
std::vector<TiedParameter> tied_parameters(const Units& units, const StageMap& map);

// Units of a stage get tensors of their own for parameters that stages in `earlier`, of the same rank, use
// too: strategies free and fill the tensors of each stage alone. Throws Error{config} for a foreign module.
void separate_copies(const Units& units, int stage, std::span<const int> earlier,
                     const std::vector<TiedParameter>& tied);

}  // namespace heddle::parallel

// How evenly the experts of a model are loaded, in a few numbers for people.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

struct SideValues;

namespace model {

// How often each expert of one layer was chosen.
struct LayerLoad {
  int64_t layer = 0;
  std::vector<double> counts;  // [experts]
};

// NeMo AutoModel's measures of one layer (C/moe/load_balance_metrics.py).
struct LoadMeasures {
  double cv = 0;                    // standard deviation (n - 1) over the mean; 0 where nothing was chosen
  double dead_fraction = 0;         // of experts without a token
  double diversity = 0;             // exp(entropy of the shares) / experts: 1 where all are equal
  std::vector<double> utilization;  // of each expert: its count over the mean count
};
HEDDLE_API LoadMeasures measure(const LayerLoad& load);

using NamedNumbers = std::vector<std::pair<std::string, double>>;
// AutoModel's brief keys without their group: cv_mean, cv_median, cv_min, cv_max, expert_utilization_min,
// _p25, _median, _p75, _max, dead_expert_frac_mean, expert_diversity_mean, expert_diversity_min. Over all
// layers, whatever rank holds them, and all microbatches of the step. Empty without layers.
HEDDLE_API NamedNumbers summarise(const std::vector<LayerLoad>& loads);

// Summarizes the loads that routers reported in a step (GROUP/load_N), with GROUP/ before the keys.
HEDDLE_API NamedNumbers summarise_loads(const SideValues& values);

}  // namespace model
}  // namespace heddle

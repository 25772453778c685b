// The kind of plugins `optimizer`: what `optimizer._target_` of a configuration names.
#pragma once

#include <functional>
#include <memory>

#include "heddle/parallel/optimizer.h"
#include "heddle/plugin/offer.h"

namespace heddle {

// plugin.optimizer<Mine>("Mine", schema()) in the plugin's body and "optimizer Mine" in its
// manifest. The name is the last word of _target_. The schema has the keys of the section besides the common
// ones, whose values OptimizerUpdate and TrainedShard have.
struct OfferedOptimizer : OfferedSchema {
  static constexpr const char* kKind = "optimizer";
  static constexpr const char* kCommonKeys[] = {"_target_", "lr", "weight_decay", "master_weights",
                                                "param_group_overrides"};
  double lr = 1e-4, weight_decay = 0.0;  // where the section gives none
  std::string master_weights_key;        // a key that asks for fp32 copies where it is not null; empty: none
  // Keys of learning rates of some parameters: `make` gets each divided by the section's lr, a factor of
  // OptimizerUpdate::lr, so that an lr_scheduler multiplies it too. One beside an lr of 0 is refused.
  std::vector<std::string> rate_keys;
  std::vector<std::string> no_effect;  // keys that change no number: resumed runs may differ in them
  std::function<std::unique_ptr<IOptimizer>(const Node& section)> make;
};

}  // namespace heddle

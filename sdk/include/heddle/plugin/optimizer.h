// OfferedOptimizer, the plugin kind `optimizer`.
#pragma once

#include <functional>
#include <memory>

#include "heddle/parallel/optimizer.h"
#include "heddle/plugin/offer.h"

namespace heddle {

// An optimizer, whose name is the last component of `optimizer._target_`. Offered with
// plugin.optimizer<Mine>("Mine", schema()) and "optimizer Mine" in the manifest. The schema has the keys of
// the section except kCommonKeys, whose values are in OptimizerUpdate and TrainedShard.
struct OfferedOptimizer : OfferedSchema {
  static constexpr const char* kKind = "optimizer";
  static constexpr const char* kCommonKeys[] = {"_target_", "lr", "weight_decay", "master_weights",
                                                "param_group_overrides"};
  double lr = 1e-4, weight_decay = 0.0;  // used if the section does not set them
  std::string master_weights_key;        // a key that enables fp32 copies if it is not null; empty: none
  // Keys for the learning rates of some parameters. `make` gets each value divided by the section's lr, as a
  // factor of OptimizerUpdate::lr, so that an lr_scheduler also applies to it. An lr of 0 with such a key is
  // refused.
  std::vector<std::string> rate_keys;
  std::vector<std::string> no_effect;  // keys that do not affect results, in which resumed runs may differ
  std::function<std::unique_ptr<IOptimizer>(const Node& section)> make;
};

}  // namespace heddle

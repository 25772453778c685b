// The validated run: every section resolved, immutable, printable, with a fingerprint.
#pragma once

#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/config/axes.h"
#include "heddle/config/node.h"

namespace heddle {

enum class ActivationCheckpointing { none, full, selective };

// The `distributed:` section and `dist_env:`, resolved against a world size. The same on every rank.
struct Setup {
  Node configuration;    // as given, for the locations in errors
  std::string strategy;  // the plugin's name for it, not an alias
  Sizes sizes;
  std::vector<Axis> axes;   // the strategy's mesh, outermost first
  std::vector<View> views;  // further views of it: for experts, for axes of plugins
  AxisTable axis_table;     // the engine's axes and those of plugins
  Node strategy_config;     // every field of the strategy
  std::vector<std::pair<std::string, Node>>
      sections;  // further sections by name, resolved or null: "pipeline", ...
  // The parallelizers of the axes above 1, and those whose block acts at size 1, by name, in the order in
  // which they act, with their fields.
  std::vector<std::pair<std::string, Node>> parallelizers;
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::none;
  std::string backend;            // dist_env.backend, empty: chosen by the device
  double timeout_minutes = 10;    // dist_env.timeout_minutes
  double heartbeat_seconds = 60;  // dist_env.heartbeat_seconds
  std::vector<std::string> warnings;
  std::vector<std::string> not_built;  // "distributed.offload_policy: ..." set, valid, and not built yet
};

}  // namespace heddle

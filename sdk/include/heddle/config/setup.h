// The resolved and validated configuration of a run. It can be printed and has a fingerprint.
#pragma once

#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/config/axes.h"
#include "heddle/config/node.h"

namespace heddle {

// Activation checkpointing of units: none, all of a unit, or all except costly results.
enum class ActivationCheckpointing { none, full, selective };

// The sections `distributed:` and `dist_env:`, resolved for a world size. Equal on every rank.
struct Setup {
  Node configuration;    // the configuration as read, for locations in errors
  std::string strategy;  // the plugin's name for the strategy, not an alias
  Sizes sizes;
  std::vector<Axis> axes;   // the strategy's mesh, outermost first
  std::vector<View> views;  // further views of the mesh: for experts, for axes of plugins
  AxisTable axis_table;     // the axes of the engine and of plugins
  Node strategy_config;     // every field of the strategy
  std::vector<std::pair<std::string, Node>>
      sections;  // other sections by name, such as "pipeline", resolved or null
  // Parallelizers by name with their fields, in the order in which they act: those of axes above 1, and those
  // whose section also acts at size 1.
  std::vector<std::pair<std::string, Node>> parallelizers;
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::none;
  std::string backend;            // dist_env.backend; if empty, the device decides
  double timeout_minutes = 10;    // dist_env.timeout_minutes
  double heartbeat_seconds = 60;  // dist_env.heartbeat_seconds
  std::vector<std::string> warnings;
  // Fields that are set and valid but not built yet: "distributed.offload_policy: ...".
  std::vector<std::string> not_built;
};

}  // namespace heddle

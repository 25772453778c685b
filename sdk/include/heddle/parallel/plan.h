// The plugins of one run, made and checked. They hold their configuration only, until there is a mesh.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/config/setup.h"
#include "heddle/mesh/device.h"
#include "heddle/parallel/parallelizer.h"
#include "heddle/parallel/strategy.h"
#include "heddle/schedule/schedule.h"

namespace heddle {

struct Plan {
  std::unique_ptr<IStrategy> strategy;
  std::string strategy_name, strategy_file;  // for messages; empty file: the engine's own
  std::vector<std::shared_ptr<IParallelizer>>
      parallelizers;                                  // in the order in which they act, before the strategy
  std::vector<std::string> parallelizer_names;        // for messages; may be empty
  std::shared_ptr<const IPipelineSchedule> schedule;  // null: no pipeline
  PipelineConfig pipeline;                            // used if there is a schedule
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::none;
  std::unique_ptr<IDevice> device;  // null: the CPU
};

}  // namespace heddle

// Plan, the plugins of one run after creation and checks. They have only their configuration until there is a
// mesh.
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

// The strategy, parallelizers, schedule and device of a run.
struct Plan {
  std::unique_ptr<IStrategy> strategy;
  std::string strategy_name, strategy_file;  // for messages; an empty file stands for the engine itself
  std::vector<std::shared_ptr<IParallelizer>> parallelizers;  // in the order in which they act
  std::vector<std::string> parallelizer_names;                // for messages; may be empty
  std::shared_ptr<const IPipelineSchedule> schedule;          // null without a pipeline
  PipelineConfig pipeline;                                    // used only with a schedule
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::none;
  std::unique_ptr<IDevice> device;  // null for the CPU
};

}  // namespace heddle

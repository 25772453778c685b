// The plugins one run has chosen, made and checked. They hold words only, until there is a mesh.
#pragma once

#include <memory>
#include <vector>

#include "heddle/config/setup.h"
#include "heddle/parallel/parallelizer.h"
#include "heddle/parallel/strategy.h"
#include "heddle/schedule/schedule.h"

namespace heddle {

struct Plan {
  std::unique_ptr<IStrategy> strategy;
  std::vector<std::unique_ptr<IParallelizer>>
      parallelizers;  // in the order in which they act, before the strategy
  std::unique_ptr<IPipelineSchedule> schedule;
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::none;  // or full
};

}  // namespace heddle

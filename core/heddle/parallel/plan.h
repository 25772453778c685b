// The plugins one run has chosen, made and checked. They hold words only, until there is a mesh.
#pragma once

#include <memory>
#include <vector>

#include "heddle/parallel/parallelizer.h"
#include "heddle/schedule/schedule.h"
#include "heddle/parallel/strategy.h"

namespace heddle {

struct Plan {
  std::unique_ptr<IStrategy> strategy;
  std::vector<std::unique_ptr<IParallelizer>>
      parallelizers;  // in the order in which they act, before the strategy
  std::unique_ptr<IPipelineSchedule> schedule;
};

}  // namespace heddle

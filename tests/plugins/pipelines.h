// Runs of a small model through pipelines, and the same model on one rank.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "plugins/schedules.h"
#include "plugins/training_world.h"

namespace heddle::tests {

// Five layers, and sizes that divide by nothing.
Training single_model();

// What it trains to on one rank.
const Outcome& alone();

// The same on `ranks` stages, by a schedule from build/plugins; "": the caller gives one.
Training pipeline(const std::string& schedule, int ranks, int microbatch_rows, int calls = 1);

std::unique_ptr<IPipelineSchedule> make_schedule(const std::string& name);

template <class Schedule, class... Arguments>
std::function<std::unique_ptr<IPipelineSchedule>()> made(Arguments... arguments) {
  return [=] { return std::make_unique<Schedule>(arguments...); };
}

}  // namespace heddle::tests

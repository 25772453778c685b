// A predicted step as a picture (SVG) and as a trace that Perfetto opens.
#pragma once

#include <string>

#include "lib/cost/step_cost.h"

namespace heddle {

// Draws, for each kind of stage, the streams of its device over time, colored by kind of work, and its memory
// below. title: one line. The cost must have timelines.
std::string step_svg(const StepCost& cost, const std::string& title);

// Writes a process for each kind of stage, with a thread for each stream and a counter of the memory. The
// cost must have timelines.
std::string step_trace(const StepCost& cost, const std::string& title);

}  // namespace heddle

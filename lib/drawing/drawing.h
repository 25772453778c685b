// A schedule for people and scripts: an aligned table, JSON, a picture.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "heddle/schedule/schedule.h"
#include "heddle/schedule/simulate.h"

namespace heddle::schedule {

// A checked table with its name. Times are those of schedule::simulate with its default costs.
struct Drawing {
  std::string name;  // "1f1b", or the path of a file
  ScheduleTable table;
  std::vector<int> rank_of_stage;
  int microbatches = 0;
};

// A line a rank: its actions in columns of time (a lowered table: one after another), its idle share and its
// peak of microbatches alive, each on all of the rank's layers.
HEDDLE_API std::string to_table(const Drawing& drawing);

// One line: {"schedule", "ranks", "stages", "microbatches", "rank_of_stage", "rows": [["0F0", ...], ...],
// "simulation": {"costs", "length", "idle": [...], "peak": [...], "times": [[[start, end], ...], ...]}}.
HEDDLE_API std::string to_json(const Drawing& drawing);

// A picture: time runs to the right, one row per rank, colours by kind of action and shades by stage. Of a
// lowered table the transfers are drawn as lines between rows.
HEDDLE_API std::string to_svg(const Drawing& drawing);

// Pictures of several schedules below each other, in one scale of time. `costs` are of all layers of a rank:
// those of a stage are its share.
HEDDLE_API std::string to_sheet(std::span<const Drawing> drawings, const Costs& costs);

// For captions: "4 ranks, 4 stages, 8 microbatches", "idle 27.3 %".
std::string sizes_text(const Drawing& drawing);
std::string idle_text(double share);
// "2.5": a simulation's peak as `heddle schedule --compare` prints it, in microbatches each on all layers of
// a rank, of as many stages a rank as these sizes have.
std::string peak_text(int peak, size_t stages, size_t ranks);

}  // namespace heddle::schedule

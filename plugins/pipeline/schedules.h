// Schedules that this plugin offers: pure functions from sizes to tables, and their placement of stages.
#pragma once

#include "heddle/schedule/schedule.h"

namespace heddle::pipeline {

// `stages` is a multiple of `ranks`; every rank holds `each` stages.
struct Sizes {
  int ranks, stages, microbatches;
  int each() const { return stages / ranks; }
};

// One stage per rank.
ScheduleTable gpipe(const Sizes& sizes);                     // Huang et al. 2019, arXiv:1811.06965
ScheduleTable one_forward_one_backward(const Sizes& sizes);  // Narayanan et al. 2020, arXiv:2006.09503
ScheduleTable zb1p(const Sizes& sizes);                      // Qi et al. 2023, arXiv:2401.10241: ZB-H1
ScheduleTable zb2p(const Sizes& sizes);                      // the same paper: ZB-H2

// Several stages per rank in a loop: rank r holds r, r + ranks, ...
ScheduleTable looped_bfs(const Sizes& sizes);               // Lamy-Poirier 2022, arXiv:2211.05953
ScheduleTable dfs(const Sizes& sizes);                      // the same paper: depth first
ScheduleTable interleaved_1f1b(const Sizes& sizes);         // Narayanan et al. 2021, arXiv:2104.04473
ScheduleTable interleaved_zero_bubble(const Sizes& sizes);  // Qi et al. 2023, arXiv:2401.10241: ZB1P

// Two stages per rank in a V: rank r holds r and 2 * ranks - 1 - r.
ScheduleTable zbv_zero_bubble(const Sizes& sizes);  // Qi et al. 2023, arXiv:2401.10241: ZB-V
ScheduleTable dual_pipe_v(const Sizes& sizes);      // DeepSeek-AI 2024, arXiv:2412.19437
ScheduleTable v_half(const Sizes& sizes);           // Qi et al. 2024, arXiv:2405.15362
ScheduleTable v_min(const Sizes& sizes);            // the same paper

using Plan = ScheduleTable (*)(const Sizes& sizes);
enum class Placing { loop, v };

// Schedule of a plan. kLeast and kMost: allowed number of stages per rank.
template <Plan kPlan, Placing kPlacing, int kLeast, int kMost>
class Planned : public IPipelineSchedule {
 public:
  ScheduleTable plan(int ranks, int stages, int microbatches) const override {
    return kPlan({ranks, stages, microbatches});
  }
  int rank_of(int stage, int ranks, int stages) const override {
    return kPlacing == Placing::v && stage >= ranks ? stages - 1 - stage : stage % ranks;
  }
  StagesPerRank stages_per_rank() const override { return {kLeast, kMost}; }
};

template <Plan kPlan>
using OneStage = Planned<kPlan, Placing::loop, 1, 1>;
template <Plan kPlan>
using Looped = Planned<kPlan, Placing::loop, 2, kAnyNumber>;
template <Plan kPlan>
using InAV = Planned<kPlan, Placing::v, 2, 2>;

}  // namespace heddle::pipeline

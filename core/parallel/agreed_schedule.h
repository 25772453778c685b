// A schedule whose tables are searched: rank 0 searches, and its table goes to all ranks.
#pragma once

#include <array>
#include <map>
#include <memory>

#include "heddle/base/export.h"
#include "heddle/mesh/rendezvous.h"
#include "heddle/schedule/schedule.h"

namespace heddle::parallel {

// plan() of sizes that are new is a rendezvous of all ranks of the run: every rank calls it, with the same
// sizes. Throws on every rank what the search throws on rank 0, and Error{mesh} when ranks plan for different
// sizes.
class HEDDLE_API AgreedSchedule : public IPipelineSchedule {
 public:
  // The rendezvous outlives it.
  AgreedSchedule(std::shared_ptr<const IPipelineSchedule> searched, Rendezvous& rendezvous)
      : searched_(std::move(searched)), rendezvous_(rendezvous) {}
  ScheduleTable plan(int ranks, int stages, int microbatches) const override;
  int rank_of(int stage, int ranks, int stages) const override {
    return searched_->rank_of(stage, ranks, stages);
  }
  StagesPerRank stages_per_rank() const override { return searched_->stages_per_rank(); }

 private:
  const std::shared_ptr<const IPipelineSchedule> searched_;
  Rendezvous& rendezvous_;
  mutable std::map<std::array<int, 3>, ScheduleTable> tables_;
};

// Whether its tables are found by a search, for times or without.
HEDDLE_API bool is_searched(const IPipelineSchedule& schedule);

}  // namespace heddle::parallel

// The small model, its pipelines, and the tables of the tests' schedules.
#include "plugins/pipelines.h"

#include <algorithm>
#include <vector>

namespace heddle::tests {

Training single_model() {
  Training run;
  run.model = odd_llama();
  run.model.num_hidden_layers = 5;
  return run;
}

const Outcome& alone() {
  static const Outcome outcome = train(single_model());
  return outcome;
}

Training pipeline(const std::string& schedule, int ranks, int microbatch_rows, int calls) {
  return on(single_model(), "single pp" + std::to_string(ranks) + "(" + schedule + ") rows" +
                                std::to_string(microbatch_rows) + " calls" + std::to_string(calls));
}

std::unique_ptr<IPipelineSchedule> make_schedule(const std::string& name) {
  return make_offered<OfferedSchedule>("schedule", name);
}

int BreadthFirst::rank_of(int stage, int ranks, int) const {
  if (placement_ == Placement::loop) return stage % ranks;
  const int turn = stage / ranks, place = stage % ranks;
  return turn % 2 == 0 ? place : ranks - 1 - place;
}

ScheduleTable BreadthFirst::plan(int ranks, int stages, int microbatches) const {
  ScheduleTable table(ranks);
  for (int stage = 0; stage < stages; ++stage)
    for (int at = 0; at < microbatches; ++at)
      table[rank_of(stage, ranks, stages)].push_back({Action::forward, stage, at});
  for (int stage = stages - 1; stage >= 0; --stage)
    for (int at = microbatches - 1; at >= 0; --at)
      table[rank_of(stage, ranks, stages)].push_back({Action::backward, stage, at});
  return table;
}

ScheduleTable LateWeights::plan(int ranks, int stages, int microbatches) const {
  ScheduleTable table(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const int ahead = std::min(stages - rank, microbatches);
    int weights = 0;
    const auto add = [&](Action::Kind kind, int at) { table[rank].push_back({kind, rank, at}); };
    for (int at = 0; at < ahead; ++at) add(Action::forward, at);
    for (int at = 0; at < microbatches; ++at) {
      add(Action::backward_input, at);
      if (at >= lag_) add(Action::backward_weight, weights++);
      if (at + ahead < microbatches) add(Action::forward, at + ahead);
    }
    while (weights < microbatches) add(Action::backward_weight, weights++);
  }
  return table;
}

}  // namespace heddle::tests

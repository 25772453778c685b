// Number of checkpoints that a run will save, compared with its steps.
#include <gtest/gtest.h>

#include "lib/run/spec/step_scheduler.h"

namespace heddle {
namespace {

int64_t counted(StepScheduler scheduler, int64_t first) {
  int64_t count = 0;
  scheduler.go_on_from(first);
  while (const auto info = scheduler.next()) count += info->checkpoint ? 1 : 0;
  return count;
}

TEST(StepScheduler, CountsRemainingCheckpoints) {
  for (const int64_t every : {1, 2, 3, 4, 6, 40})
    for (const int64_t total : {1, 11, 12, 13})
      for (const bool each_epoch : {true, false})
        for (const bool stream : {true, false}) {
          StepSection section;
          section.global_batch_size = 1;
          section.num_epochs = std::nullopt;
          section.max_steps = total;
          section.ckpt_every_steps = every;
          section.save_checkpoint_every_epoch = each_epoch;
          const StepScheduler scheduler(section, 1, stream ? std::nullopt : std::optional<int64_t>(4));
          for (int64_t first = 0; first <= total; ++first)
            EXPECT_EQ(scheduler.saves_from(first), counted(scheduler, first))
                << every << " " << total << " " << each_epoch << " " << stream << " " << first;
        }
}

}  // namespace
}  // namespace heddle

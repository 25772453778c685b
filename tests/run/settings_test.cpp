// Settings that differ from a checkpoint's, and a global batch that is larger than the data.
#include "lib/run/spec/settings.h"

#include <gmock/gmock.h>

#include "lib/run/preflight/checks.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CheckBatch, RefusesAGlobalBatchLargerThanTheData) {
  StepSection steps;
  steps.global_batch_size = 8;
  steps.where = "run.yaml:2 step_scheduler.global_batch_size";
  EXPECT_EQ(tests::thrown_by([&] { check_batch(steps, 8); }), "");
  EXPECT_EQ(tests::thrown_by([&] { check_batch(steps, 5, 40); }),
            "error[config] run.yaml:2 step_scheduler.global_batch_size: global_batch_size (8) is larger than "
            "the data set: it has 5 packs of 40 samples\n  hint: set step_scheduler.global_batch_size to at "
            "most 5, decrease packed_sequence.packed_sequence_size, or use more data");
}

TEST(ChangedSettings, AreOneLinePerSettingWithBothValues) {
  EXPECT_THAT(changed_settings("epoch_0_step_3", {{"a", "1"}},
                               {{"a", "1"}, {"distributed.b", "null"}, {"distributed.c", "[]"}}),
              IsEmpty());
  EXPECT_THAT(changed_settings("epoch_0_step_3", {{"a", "1"}}, {{"a", "1"}, {"distributed.b", "2"}}),
              ElementsAre("distributed.b was not set in the run that saved epoch_0_step_3, and is 2 now"));
  EXPECT_THAT(changed_settings("epoch_0_step_3", {{"a", "1"}, {"model.config.b", "2"}}, {{"a", "3"}}),
              ElementsAre("a was 1 in the run that saved epoch_0_step_3, and is 3 now",
                          "model.config.b was 2 in the run that saved epoch_0_step_3, and is not set now"));
  EXPECT_THAT(changed_settings("epoch_0_step_3", {}, {{"a", "3"}}),
              ElementsAre("epoch_0_step_3 was saved by an older heddle without a digest of its data and "
                          "settings, so they cannot be compared"));
}

}  // namespace
}  // namespace heddle

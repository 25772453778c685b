// Warning of a disk that is too small for a run's checkpoints.
#include "lib/run/checkpointing/disk_space.h"

#include <gtest/gtest.h>

#include "lib/run/recipe/sections.h"

namespace heddle {
namespace {

constexpr SpaceNeed kSmall = {2, 3000, 6000, 5000};

TEST(SpaceText, PicksASuitableUnit) {
  CheckpointSection section;
  section.directory = "run";
  EXPECT_EQ(
      space_text(section, kSmall),
      "the checkpoints of this run take 5.86 KiB in run (2 of 2.93 KiB), and the disk has 4.88 KiB: set "
      "checkpoint.max_recent_checkpoints, or save less often with step_scheduler.ckpt_every_steps");
  EXPECT_TRUE(space_text(section, {1, 3e12, 3e12, 5e9})
                  .starts_with("the checkpoints of this run take 2.73 TiB in run (1 of 2.73 TiB), and the "
                               "disk has 4.66 GiB: "));
}

TEST(SpaceText, SuggestsOptionsThatAreNotSet) {
  CheckpointSection section;
  bool exports = true;
  const auto advice = [&] {
    SpaceNeed need = kSmall;
    need.exports = exports;
    const std::string text = space_text(section, need);
    return text.substr(text.rfind(": ", text.find("save_consolidated:") - 1) + 2);
  };
  section.max_recent = 3;
  EXPECT_EQ(advice(),
            "lower checkpoint.max_recent_checkpoints, which is 3, or skip the export with "
            "checkpoint.save_consolidated: false");
  section.max_recent = 1;
  EXPECT_EQ(advice(),
            "free disk space, or set checkpoint.checkpoint_dir to a directory on a larger disk, or skip the "
            "export with checkpoint.save_consolidated: false");
  exports = false;
  EXPECT_EQ(advice(), "free disk space, or set checkpoint.checkpoint_dir to a directory on a larger disk");
}

}  // namespace
}  // namespace heddle

// Message that explains why no checkpoint was written after skipped updates.
#include "lib/report/skipped_updates.h"

#include <gtest/gtest.h>

#include <cmath>

namespace heddle {
namespace {

TEST(SkippedUpdatesOfARun, SayWhyNothingIsSaved) {
  SkippedUpdates skipped(10);
  skipped.add(false, 2.0);
  EXPECT_EQ(skipped.why_not_saved(true), "");
  skipped.add(true, 2.0);
  EXPECT_EQ(skipped.why_not_saved(true), "");
  EXPECT_EQ(skipped.why_not_saved(false),
            "1 of 2 updates were skipped because the loss or the gradient norm was nan, inf or too large");
  skipped.add(true, INFINITY);
  EXPECT_EQ(skipped.why_not_saved(true),
            "2 of 3 updates were skipped because the loss or the gradient norm was nan, inf or too large");
  skipped.add(false, 1.0);
  skipped.add(false, -NAN);
  EXPECT_EQ(skipped.why_not_saved(true), "the loss is nan");
}

}  // namespace
}  // namespace heddle

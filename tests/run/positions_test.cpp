// Maximum sequence length of a model, with the reason that its family gives.
#include <gtest/gtest.h>

#include "lib/run/preflight/open_data.h"

namespace heddle {
namespace {

TEST(Positions, AreReportedWithTheModelsReason) {
  ModelFacts facts{"mine", 100, 1024, ""};
  EXPECT_EQ(positions_text(facts), "1024 positions");
  EXPECT_EQ(or_more_positions(facts), ", or increase the model's max_position_embeddings");
  facts.positions_reason = "n_positions: each position has a learned vector";
  EXPECT_EQ(positions_text(facts), "1024 positions (n_positions: each position has a learned vector)");
  EXPECT_EQ(or_more_positions(facts), "");
}

}  // namespace
}  // namespace heddle

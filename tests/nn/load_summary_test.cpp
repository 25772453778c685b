// Load statistics of experts, compared with values computed by hand.
#include "lib/nn/experts/load_summary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace heddle {
namespace {

using model::LayerLoad;

TEST(LoadSummary, MeasuresOneLayer) {
  const model::LoadMeasures even = model::measure({0, {7, 7, 7}});
  EXPECT_EQ(even.cv, 0);
  EXPECT_NEAR(even.diversity, 1, 1e-12);
  const model::LoadMeasures uneven = model::measure({0, {400, 100, 100, 100}});
  EXPECT_NEAR(uneven.utilization[0], 2.2857, 1e-4);
  EXPECT_NEAR(uneven.cv, 0.857, 1e-3);
  EXPECT_NEAR(model::measure({0, {0, 9, 0, 0}}).diversity, 0.25, 1e-12);
  EXPECT_NEAR(model::measure({0, {9, 9, 0, 0}}).diversity, 0.5, 1e-12);
  const model::LoadMeasures none = model::measure({0, {0, 0}});
  EXPECT_EQ(none.dead_fraction, 1);
  EXPECT_EQ(none.diversity, 0);
  EXPECT_EQ(none.cv, 0);
}

TEST(LoadSummary, SummarisesLayers) {
  EXPECT_TRUE(model::summarise({}).empty());
  const model::NamedNumbers numbers = model::summarise({{0, {2, 2}}, {3, {4, 0}}, {5, {3, 1}}});
  const std::map<std::string, double> got(numbers.begin(), numbers.end());
  EXPECT_EQ(got.size(), 12u);
  EXPECT_NEAR(got.at("cv_max"), std::sqrt(8.0) / 2, 1e-12);
  EXPECT_EQ(got.at("cv_min"), 0);
  EXPECT_NEAR(got.at("cv_median"), std::sqrt(2.0) / 2, 1e-12);
  // Utilization of the experts: 0, 0.5, 1, 1, 1.5, 2.
  EXPECT_EQ(got.at("expert_utilization_p25"), 0.5);
  EXPECT_EQ(got.at("expert_utilization_median"), 1);
  EXPECT_EQ(got.at("expert_utilization_p75"), 1.5);
  EXPECT_EQ(got.at("expert_utilization_max"), 2);
  EXPECT_NEAR(got.at("dead_expert_frac_mean"), 0.5 / 3, 1e-12);
  EXPECT_NEAR(got.at("expert_diversity_min"), 0.5, 1e-12);
}

}  // namespace
}  // namespace heddle

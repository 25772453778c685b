// Checkpoints of strategies with state: three and three resumed steps equal six steps, or are refused.
#include <gmock/gmock.h>

#include <fstream>
#include <iterator>

#include "flow/stops/started.h"
#include "flow/training_files.h"

namespace flow {
namespace {

using ::testing::HasSubstr;

Words with(const std::string& section, const std::string& steps, const std::string& ranks) {
  return {"--plugins",
          "[" HEDDLE_BINARY_DIR "/tests/examples/libheddle_local_sgd.so, " HEDDLE_BINARY_DIR
          "/tests/examples/libheddle_compressed.so]",
          "--distributed",
          section,
          "--nproc-per-node",
          ranks,
          "--step_scheduler.max_steps",
          steps};
}

std::string bytes_of(const TrainingFiles& files, const std::string& name) {
  std::ifstream in(files.path(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class StrategyState : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(StrategyState, ContinuesWithTheSameLosses) {
  const TrainingFiles files;
  const std::string section = GetParam().second;
  ASSERT_EQ(heddle(files.train("whole", with(section, "6", "2"))).status, 0);
  ASSERT_EQ(heddle(files.train("parts", with(section, "3", "2"))).status, 0);
  const Outcome rest = heddle(files.train("parts", with(section, "6", "2")));
  ASSERT_EQ(rest.status, 0) << rest.error;
  for (const char* number : {"loss", "grad_norm"}) {
    const std::vector<double> want = column(files.path("whole/training.jsonl"), number);
    ASSERT_EQ(want.size(), 6u);
    EXPECT_EQ(column(files.path("parts/training.jsonl"), number), want) << number;
  }
  for (const char* part : {"model", "optim"})
    EXPECT_EQ(bytes_of(files, "parts/epoch_0_step_5/" + std::string(part) + "/manifest.json"),
              bytes_of(files, "whole/epoch_0_step_5/" + std::string(part) + "/manifest.json"))
        << part;
}

INSTANTIATE_TEST_SUITE_P(
    Examples, StrategyState,
    ::testing::Values(std::pair("local_sgd", "{strategy: local_sgd, sync_every: 4}"),
                      std::pair("compressed", "{strategy: compressed}"),
                      std::pair("exact_local_sgd", "{strategy: local_sgd, sync_every: 1}"),
                      std::pair("exact_compressed", "{strategy: compressed, compression: float32}")),
    [](const auto& info) { return std::string(info.param.first); });

TEST(ResumedStrategy, IsRefusedOnAnotherNumberOfRanks) {
  const TrainingFiles files;
  const std::string sgd = "{strategy: local_sgd, sync_every: 4}", compressed = "{strategy: compressed}";
  ASSERT_EQ(heddle(files.train("sgd", with(sgd, "3", "2"))).status, 0);
  const Outcome fewer = heddle(files.train("sgd", with(sgd, "6", "1")));
  EXPECT_EQ(fewer.status, 2) << fewer.error;
  EXPECT_THAT(fewer.error, HasSubstr("for each of 2 ranks, but this run has equal values on all ranks"));
  EXPECT_THAT(fewer.error, HasSubstr("hint: resume with the strategy and the number of ranks that saved it"));
  ASSERT_EQ(heddle(files.train("compressed", with(compressed, "3", "2"))).status, 0);
  const Outcome more = heddle(files.train("compressed", with(compressed, "6", "1")));
  EXPECT_EQ(more.status, 2) << more.error;
  EXPECT_THAT(more.error, HasSubstr("holds 'compressed.residual.model."));
  EXPECT_THAT(more.error, HasSubstr("with the shape [2, "));
}

// Exact modes have no state that differs between ranks.
TEST(ResumedStrategy, AcceptsAnotherNumberOfRanksInExactMode) {
  const TrainingFiles files;
  const std::string exact = "{strategy: compressed, compression: float32}";
  ASSERT_EQ(heddle(files.train("run", with(exact, "3", "2"))).status, 0);
  const Outcome rest = heddle(files.train("run", with(exact, "6", "1")));
  EXPECT_EQ(rest.status, 0) << rest.error;
}

TEST(ApproximateStrategy, IsReportedBeforeTheFirstStep) {
  const TrainingFiles files;
  const Outcome run = heddle(files.train("run", with("{strategy: compressed}", "2", "2")));
  EXPECT_EQ(run.status, 0) << run.error;
  EXPECT_THAT(
      run.error,
      HasSubstr("the strategy 'compressed' is approximate: gradients are rounded to 8 bits before they "
                "are summed; it is exact with {compression: float32} under `distributed:`"));
}

}  // namespace
}  // namespace flow

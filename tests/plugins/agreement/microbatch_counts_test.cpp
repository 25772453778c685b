// Ranks with different numbers of microbatches: every rank reports all counts, and no rank blocks.
#include <gmock/gmock.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "heddle/train/step.h"
#include "plugins/agreement/named_hosts.h"
#include "plugins/pipelines.h"
#include "plugins/training_data.h"
#include "thrown.h"

namespace heddle::tests {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kEqualCountsHint =
    "\n  hint: Give each rank the same number of batches, of the same number of rows, in each step: what "
    "next_batches() of the host or the data set of a plugin returns depends on the rank.";

// Returns the error of each rank in a step in which `rank` gets only the first `count` of its batches.
std::vector<std::string> errors_of(Training run, int rank, size_t count, bool evaluates = false) {
  run.on_device = [](Rendezvous& inner) { return std::make_unique<NamedHosts>(inner, 2); };
  std::map<int, std::string> errors;
  std::mutex mutex;
  (void)thrown_by([&] {
    on_ranks(run, [&](Stages& stages, const DeviceMesh& mesh) {
      StepConfig config;
      Step step(stages, mesh, config);
      std::vector<Batch> batches = deal(run, 0, mesh);
      step.run(batches, 0.01, 0.1);
      if (mesh.rank("world") == rank) batches.resize(count);
      const std::string error =
          thrown_by([&] { evaluates ? (void)step.evaluate(batches) : (void)step.run(batches, 0.01, 0.1); });
      const std::lock_guard lock(mutex);
      errors[mesh.rank("world")] = error;
      if (!error.empty()) throw Error(ErrorCode::mesh, "test", error);
    });
  });
  std::vector<std::string> out;
  for (const auto& [one, error] : errors) out.push_back(error);
  return out;
}

void expect_refused(const std::vector<std::string>& errors, size_t ranks, const std::string& counts) {
  EXPECT_EQ(errors.size(), ranks);
  for (const std::string& error : errors)
    EXPECT_EQ(error, "error[mesh] train: the ranks have different numbers of microbatches in this step: " +
                         counts + kEqualCountsHint);
}

TEST(MicrobatchCounts, AreNamedOnEveryRankOfDataParallelism) {
  for (const char* line : {"ddp dp4 calls3", "fsdp2 dp4 calls3", "fsdp2 dp4 replicas2 calls3"}) {
    SCOPED_TRACE(line);
    expect_refused(errors_of(on(single_model(), line), 3, 2), 4,
                   "2 on rank 3 on host1, 3 on ranks 0, 1 on host0 and rank 2 on host1");
    expect_refused(errors_of(on(single_model(), line), 1, 1, /*evaluates=*/true), 4,
                   "1 on rank 1 on host0, 3 on rank 0 on host0 and ranks 2, 3 on host1");
  }
}

TEST(MicrobatchCounts, AreNamedOnEveryRankOfTensorParallelism) {
  for (const char* line : {"ddp tp2 calls3", "fsdp2 dp2 tp2 calls3"}) {
    SCOPED_TRACE(line);
    const std::vector<std::string> errors = errors_of(on(four_heads(), line), 1, 2);
    expect_refused(errors, errors.size(),
                   errors.size() == 2 ? "2 on rank 1, 3 on rank 0"
                                      : "2 on rank 1 on host0, 3 on rank 0 on host0 and ranks 2, 3 on host1");
  }
}

TEST(MicrobatchCounts, AreNamedOnEveryRankOfAPipeline) {
  for (const char* schedule : {"1f1b", "gpipe", "zb1p"})
    for (const int rank : {0, 1}) {
      SCOPED_TRACE(schedule);
      Training run = pipeline(schedule, 2, 1, 3);
      const int64_t rows = run.sequences / 3;
      const std::string all = std::to_string(3 * rows), fewer = std::to_string(rows);
      expect_refused(
          errors_of(run, rank, 1), 2,
          fewer + " on rank " + std::to_string(rank) + ", " + all + " on rank " + std::to_string(1 - rank));
    }
}

TEST(MicrobatchCounts, AreNamedOnEveryRankOfAPipelineWithDataParallelism) {
  expect_refused(errors_of(on(single_model(), "fsdp2 dp2 pp2(1f1b) rows1 calls2"), 2, 1), 4,
                 "3 on rank 2 on host1, 6 on ranks 0, 1 on host0 and rank 3 on host1");
}

TEST(MicrobatchCounts, NameARankWithoutAnyMicrobatch) {
  for (const char* line : {"ddp dp4 calls2", "fsdp2 dp4 calls2"}) {
    SCOPED_TRACE(line);
    const std::vector<std::string> errors = errors_of(on(single_model(), line), 2, 0);
    ASSERT_EQ(errors.size(), 4U);
    EXPECT_THAT(errors[2],
                StartsWith("error[mesh] train: rank 2 has no microbatch in this step, and the other "
                           "ranks have 6 together\n"));
    for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("rank 2 has no microbatch"));
  }
}

TEST(MicrobatchCounts, CanChangeBetweenSteps) {
  Training run = on(single_model(), "fsdp2 dp2 calls3");
  on_ranks(run, [&](Stages& stages, const DeviceMesh& mesh) {
    Step step(stages, mesh, {});
    std::vector<Batch> batches = deal(run, 0, mesh);
    for (const size_t count : {3, 1, 0, 2}) {
      batches.resize(std::min(batches.size(), count));
      EXPECT_EQ(thrown_by([&] { step.run(batches, 0.01, 0.1); }), "");
      batches = deal(run, 0, mesh);
    }
  });
}

}  // namespace
}  // namespace heddle::tests

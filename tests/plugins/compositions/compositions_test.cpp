// Random compositions equal `single`: losses, gradient norms and parameters after five steps; or they are
// refused with a reason. HEDDLE_COMPOSITIONS=300 tries the seeds 1 to 300 in place of the first 20,
// HEDDLE_COMPOSITION=117 tries one seed.
#include <ATen/ops/abs.h>
#include <ATen/ops/max.h>
#include <ATen/ops/sub.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <iostream>

#include "heddle/base/error.h"
#include "plugins/compositions/composition.h"
#include "plugins/whole_runs.h"

namespace heddle::tests {
namespace {

constexpr int kInCi = 20;

// Samples of three to twelve tokens, and the same tokens as samples of eleven.
class CompositionFiles {
 public:
  CompositionFiles() {
    std::vector<uint16_t> tokens;
    std::ofstream lengths(place_ / "data.lengths");
    uint32_t state = 2026;
    const auto number = [&] { return (state = state * 1664525u + 1013904223u) >> 16; };
    for (int sample = 0; sample < 150; ++sample) {
      const uint32_t length = 3 + number() % 10;
      lengths << length << "\n";
      for (uint32_t i = 0; i < length; ++i)
        tokens.push_back(i % 2 == 1 ? (tokens.back() * 3 + 1) % 53 : number() % 53);
    }
    write_token_file(place_ / "data.bin", {20240520, 1, static_cast<int32_t>(tokens.size())}, tokens);
  }

  std::string recipe(const Composition& drawn, const std::string& run, const std::string& distributed) const {
    const std::string file = "dataset: {file_pattern: " + (place_ / "data.bin").string();
    return drawn.numbers +
           (drawn.packed ? file + ", lengths: " + (place_ / "data.lengths").string() +
                               "}\npacked_sequence: {packed_sequence_size: 16}\n"
                         : file + ", seq_len: 10}\n") +
           "distributed: " + distributed +
           "\ncheckpoint: {save_consolidated: false, checkpoint_dir: " + directory(run).string() + "}\n";
  }
  std::filesystem::path directory(const std::string& run) const { return place_ / run; }

 private:
  ScratchDirectory place_;
};

struct TrainedRun {
  Told told;
  std::map<std::string, at::Tensor> parameters;
};

TrainedRun read_run(const std::filesystem::path& run) {
  return {read_metrics(run / "training.jsonl"), tensors_of(run / "LATEST" / "model")};
}

void expect_equal(const TrainedRun& got, const TrainedRun& want, bool low_precision) {
  ASSERT_EQ(got.told.steps, want.told.steps);
  for (size_t step = 0; step < want.told.steps.size(); ++step) {
    EXPECT_NEAR(got.told.losses[step], want.told.losses[step],
                (low_precision ? 2e-2 : 2e-5) * want.told.losses[step])
        << "loss of step " << step;
    EXPECT_NEAR(got.told.norms[step], want.told.norms[step],
                (low_precision ? 1e-1 : 2e-4) * want.told.norms[step])
        << "gradient norm of step " << step;
  }
  ASSERT_EQ(got.parameters.size(), want.parameters.size());
  for (const auto& [name, tensor] : want.parameters) {
    ASSERT_TRUE(got.parameters.contains(name)) << name;
    const double off =
        (got.parameters.at(name).to(at::kDouble) - tensor.to(at::kDouble)).abs().max().item<double>();
    EXPECT_LE(off, low_precision ? 5e-2 : 1e-4) << name;
  }
}

// How a composition ended.
enum class Verdict { equal, refused };

Verdict try_composition(const CompositionFiles& files, const Composition& drawn) {
  const std::string run = "seed-" + std::to_string(drawn.seed);
  std::vector<std::string> refusals;
  const std::string recipe = files.recipe(drawn, run, drawn.distributed);
  SCOPED_TRACE("HEDDLE_COMPOSITION=" + std::to_string(drawn.seed) + ", " + std::to_string(drawn.ranks) +
               " ranks:\n" + recipe);
  train_recipe(recipe, drawn.ranks, &refusals);
  if (!refusals.empty()) {
    // Refused as a whole, before a step, with a place and a reason.
    EXPECT_FALSE(std::filesystem::exists(files.directory(run) / "training.jsonl")) << refusals.front();
    EXPECT_TRUE(refusals.front().starts_with("error[config]") ||
                refusals.front().starts_with("error[mesh]") ||
                refusals.front().starts_with("error[not_built]"))
        << refusals.front();
    if (std::getenv("HEDDLE_COMPOSITIONS") != nullptr)
      std::cerr << drawn.seed << ": " << refusals.front() << "\n";
    return Verdict::refused;
  }
  const std::string alone = run + "-single";
  train_recipe(files.recipe(drawn, alone, "{strategy: single}"), 1);
  expect_equal(read_run(files.directory(run)), read_run(files.directory(alone)), drawn.low_precision);
  std::filesystem::remove_all(files.directory(run));
  std::filesystem::remove_all(files.directory(alone));
  return Verdict::equal;
}

TEST(Compositions, RandomOnesEqualSingleOrAreRefusedWithTheReason) {
  const CompositionFiles files;
  if (const char* one = std::getenv("HEDDLE_COMPOSITION")) {
    try_composition(files, draw_composition(std::stoull(one)));
    return;
  }
  const char* more = std::getenv("HEDDLE_COMPOSITIONS");
  const int count = more != nullptr ? std::stoi(more) : kInCi;
  int equal = 0;
  for (int seed = 1; seed <= count; ++seed)
    equal += try_composition(files, draw_composition(seed)) == Verdict::equal;
  RecordProperty("equal", equal);
  if (more != nullptr) std::cerr << equal << " of " << count << " trained, the others were refused\n";
  EXPECT_GE(equal, count / 2);
}

}  // namespace
}  // namespace heddle::tests

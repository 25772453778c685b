// Metrics files: one curve per run, and behavior of a run that finds the file of another run.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>

#include "flow/stops/stopping.h"

namespace flow {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const Words kUnsaved = {"--checkpoint.enabled", "false"};

Words steps_up_to(const std::string& steps) {
  return {"--step_scheduler.max_steps", steps};
}

// On a device the host waits for several steps at once, and writes all their lines.
TEST(MetricsFiles, AreWrittenSeveralStepsAtATimeOnADevice) {
  const TrainingFiles files;
  const Words device = {"--plugins", "[" HEDDLE_BINARY_DIR "/simulated/libheddle_simulated.so]",
                        "--dist_env.backend", "simulated"};
  const Outcome each = heddle(files.train("each", plus(device, steps_up_to("8"))));
  ASSERT_EQ(each.status, 0) << each.error;
  const Outcome three = heddle(files.train(
      "three", plus(plus(device, steps_up_to("8")), {"--step_scheduler.log_remote_every_steps", "3"})));
  ASSERT_EQ(three.status, 0) << three.error;
  const std::string one = files.path("each/training.jsonl"), other = files.path("three/training.jsonl");
  for (const char* name : {"step", "loss", "grad_norm"})
    EXPECT_EQ(column(other, name), column(one, name)) << name;
  const std::vector<double> times = column(other, "step_time");
  ASSERT_EQ(times.size(), 8U);
  EXPECT_EQ(times[0], times[2]);  // their mean
  EXPECT_EQ(times[6], times[7]);  // the last steps, which are fewer
  EXPECT_NE(times[2], times[3]);
}

TEST(MetricsFiles, AreKeptByARunWithoutCheckpoints) {
  const TrainingFiles files;
  const Words validates = {"--validation_dataset",
                           "{file_pattern: " + files.path("train.bin") + ", seq_len: 900}",
                           "--model.config.max_position_embeddings", "900"};
  ASSERT_EQ(heddle(files.train("run", plus(validates, steps_up_to("3")))).status, 0);
  const std::string training = read_text(files.path("run/training.jsonl")),
                    validation = read_text(files.path("run/validation.jsonl"));
  for (const char* number : {"1", "2"}) {
    const Outcome tried = heddle(files.train("run", plus(plus(validates, kUnsaved), steps_up_to("2"))));
    EXPECT_EQ(tried.status, 0) << tried.error;
    const std::string own = files.path("run/training." + std::string(number) + ".jsonl");
    EXPECT_THAT(tried.out + tried.error,
                HasSubstr("warning: " + files.path("run/training.jsonl") +
                          " belongs to another run: the metrics go to " + own + "\n"));
    EXPECT_THAT(tried.out, HasSubstr("  metrics     " + own + "\n"));
    EXPECT_THAT(column(own, "step"), ElementsAre(0, 1));
    EXPECT_THAT(column(files.path("run/validation." + std::string(number) + ".jsonl"), "step"),
                ElementsAre(1));
  }
  EXPECT_EQ(read_text(files.path("run/training.jsonl")), training);
  EXPECT_EQ(read_text(files.path("run/validation.jsonl")), validation);
  ASSERT_EQ(heddle(files.train("run", plus(validates, steps_up_to("5")))).status, 0);
  EXPECT_THAT(column(files.path("run/training.jsonl"), "step"), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(column(files.path("run/validation.jsonl"), "step"), ElementsAre(2, 4));
}

TEST(MetricsFiles, AreSeparateForTwoRunsInOneDirectory) {
  const TrainingFiles files;
  Started first(plus(files.train("run", kUnsaved), kLong));
  ASSERT_TRUE(eventually([&] { return column(files.path("run/training.jsonl"), "step").size() > 3; }));
  ASSERT_EQ(heddle(files.train("run", plus(kUnsaved, steps_up_to("3")))).status, 0);
  EXPECT_THAT(column(files.path("run/training.1.jsonl"), "step"), ElementsAre(0, 1, 2));
  // The run that saves there keeps the name. The other continues in its renamed file.
  ASSERT_EQ(heddle(files.train("run", steps_up_to("4"))).status, 0);
  EXPECT_THAT(column(files.path("run/training.jsonl"), "step"), ElementsAre(0, 1, 2, 3));
  const size_t so_far = column(files.path("run/training.2.jsonl"), "step").size();
  EXPECT_TRUE(eventually([&] { return column(files.path("run/training.2.jsonl"), "step").size() > so_far; }));
  kill(first.pid(), SIGTERM);
  first.wait();
  const std::vector<double> steps = column(files.path("run/training.2.jsonl"), "step");
  for (size_t i = 0; i < steps.size(); ++i) ASSERT_EQ(steps[i], i);
}

TEST(MetricsFiles, AreTwoForTwoModelsInOneDirectory) {
  const TrainingFiles files;
  const Words wider = {"--model.config.intermediate_size", "48"};
  ASSERT_EQ(heddle(files.train("run", steps_up_to("4"))).status, 0);
  const Outcome other = heddle(files.train("run", plus(wider, steps_up_to("2"))));
  ASSERT_EQ(other.status, 0) << other.error;
  EXPECT_THAT(other.out + other.error,
              HasSubstr("warning: " + files.path("run/training.jsonl") +
                        " belongs to another run: renamed to " + files.path("run/training.1.jsonl") + "\n"));
  EXPECT_THAT(column(files.path("run/training.jsonl"), "step"), ElementsAre(0, 1));
  EXPECT_THAT(column(files.path("run/training.1.jsonl"), "step"), ElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(fs::exists(files.path("run/loss.1.svg")));
  // The first run continues in its own file.
  const Outcome first =
      heddle(files.train("run", plus(steps_up_to("6"), {"--checkpoint.restore_from", "epoch_0_step_3"})));
  ASSERT_EQ(first.status, 0) << first.error;
  EXPECT_THAT(column(files.path("run/training.jsonl"), "step"), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(column(files.path("run/training.2.jsonl"), "step"), ElementsAre(0, 1));
}

TEST(MetricsFiles, AreContinuedOrRenamedWhenNamed) {
  const TrainingFiles files;
  const Words named = {"--metrics", files.path("curve.jsonl")};
  ASSERT_EQ(heddle(files.train("one", plus(named, steps_up_to("2")))).status, 0);
  ASSERT_EQ(heddle(files.train("one", plus(named, steps_up_to("4")))).status, 0);
  EXPECT_THAT(column(files.path("curve.jsonl"), "step"), ElementsAre(0, 1, 2, 3));
  ASSERT_EQ(heddle(files.train("two", plus(named, plus(kUnsaved, steps_up_to("2"))))).status, 0);
  EXPECT_THAT(column(files.path("curve.jsonl"), "step"), ElementsAre(0, 1));
  EXPECT_THAT(column(files.path("curve.1.jsonl"), "step"), ElementsAre(0, 1, 2, 3));
  EXPECT_FALSE(fs::exists(files.path("two")));  // a run without checkpoints has no directory
}

// Its lines are kept under another name, because nothing shows that they belong to the same run.
TEST(MetricsFiles, AreRenamedWhenARunWasKilledBeforeItsFirstCheckpoint) {
  const TrainingFiles files;
  {
    Started killed(plus(files.train("run"), kLong));
    ASSERT_TRUE(under_way(files));
  }
  ASSERT_EQ(heddle(files.train("run", steps_up_to("2"))).status, 0);
  EXPECT_THAT(column(files.path("run/training.jsonl"), "step"), ElementsAre(0, 1));
  EXPECT_GT(column(files.path("run/training.1.jsonl"), "step").size(), 0u);
}

// Sets with a limited number of samples. The plot has a line for each.
TEST(MetricsFiles, HaveOneCurveForSeveralValidationSets) {
  const TrainingFiles files;
  const std::string data = "{file_pattern: " + files.path("train.bin") + ", seq_len: 16, ";
  const Outcome outcome = heddle(files.train(
      "run", plus(steps_up_to("4"),
                  {"--validation_dataset", data + "limit_dataset_samples: 3}", "--validation_dataset_books",
                   data + "limit_dataset_samples: 20}", "--dataset.limit_dataset_samples", "40",
                   "--step_scheduler.val_every_steps", "2"})));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("  data    40 samples of 16 tokens"));
  EXPECT_THAT(outcome.out, HasSubstr("\nvalidation  step 4  loss "));
  EXPECT_THAT(outcome.out, HasSubstr("(48 tokens)\n"));
  EXPECT_THAT(outcome.out, HasSubstr("(320 tokens)\n"));
  const std::string svg = read_text(files.path("run/loss.svg"));
  EXPECT_THAT(svg, HasSubstr(">validation, last "));
  EXPECT_THAT(svg, HasSubstr(">validation books, last "));
}

}  // namespace
}  // namespace flow

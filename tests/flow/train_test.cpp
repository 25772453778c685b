// `heddle train` as a program: its outputs, which neither topology nor repetition changes.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "flow/stops/started.h"
#include "tests/main/with_all.h"
#include "training_files.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("Examples.*");

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Train, WritesMetricsTheLossCurveAndTheModel) {
  const TrainingFiles files;
  const Outcome outcome = heddle(files.train("run"));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(outcome.error, "");
  const std::string metrics = files.path("run/training.jsonl");
  EXPECT_THAT(column(metrics, "step"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  const std::string line = read_text(metrics);
  for (const char* key : {"epoch", "timestamp", "loss", "grad_norm", "lr", "mem", "tps", "tps_per_gpu", "mfu",
                          "num_tokens_per_step", "num_label_tokens", "step_time"})
    EXPECT_THAT(line, HasSubstr("\"" + std::string(key) + "\":"));
  EXPECT_THAT(column(metrics, "num_label_tokens"), ::testing::Each(128));
  EXPECT_LT(column(metrics, "loss").back(), column(metrics, "loss").front() - 0.3);
  EXPECT_THAT(read_text(files.path("run/loss.svg")), ::testing::StartsWith("<svg"));
  EXPECT_EQ(std::filesystem::read_symlink(files.path("run/LATEST")), "epoch_0_step_11");
  for (const char* file : {"config.json", "model.safetensors", "heddle_tokenizer.json"})
    EXPECT_TRUE(std::filesystem::exists(files.path("run/LATEST/model/consolidated") + "/" + file)) << file;
  EXPECT_THAT(outcome.out, HasSubstr("metrics     " + metrics));
  EXPECT_THAT(outcome.out, HasSubstr("loss curve  " + files.path("run/loss.svg")));
  EXPECT_THAT(outcome.out,
              HasSubstr("8 samples per step = 1 data-parallel x 4 microbatches x 2 samples; 128 tokens"));
}

TEST(Train, ThreadsOfRanksThatShareCoresWaitPassively) {
  const TrainingFiles files;
  const std::string threads =
      "OMP_NUM_THREADS=" + std::to_string(std::max(2u, std::thread::hardware_concurrency()));
  const auto header_of = [&](const Words& environment) {
    return heddle(files.train("run", {"--nproc-per-node", "2", "--step_scheduler.max_steps", "1",
                                      "--checkpoint.enabled", "false"}),
                  environment)
        .out;
  };
  EXPECT_THAT(header_of({threads}),
              ::testing::ContainsRegex("  threads [0-9]+ on each of 2 ranks, more than the [0-9]+ cores?: "
                                       "waiting is passive"));
  EXPECT_THAT(header_of({"OMP_NUM_THREADS=1"}), ::testing::Not(HasSubstr("  threads ")));
}

TEST(Train, RecordsTheConfigurationWithItsOverrides) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("run", {"--optimizer.lr=0.125", "--step_scheduler.max_steps", "2"})).status,
            0);
  const std::string recorded = read_text(files.path("run/LATEST/config.yaml"));
  EXPECT_THAT(recorded, HasSubstr("lr: 0.125"));
  EXPECT_THAT(recorded, HasSubstr("max_steps: 2"));
  EXPECT_THAT(column(files.path("run/training.jsonl"), "lr"), ElementsAre(0.125, 0.125));
}

TEST(Train, GivesTheSameBitsTwice) {
  const TrainingFiles files;
  for (const char* run : {"one", "two"}) {
    const Outcome outcome = heddle(files.train(run, {"--nproc-per-node", "2"}));
    ASSERT_EQ(outcome.status, 0) << outcome.error;
  }
  const std::string one = without_clock(files.path("one/training.jsonl"));
  EXPECT_THAT(one, HasSubstr("\"loss\""));
  EXPECT_EQ(one, without_clock(files.path("two/training.jsonl")));
  EXPECT_EQ(read_text(files.path("one/LATEST/model/consolidated/model.safetensors")),
            read_text(files.path("two/LATEST/model/consolidated/model.safetensors")));
}

struct Topology {
  std::string name;
  Words words;
};

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double relative,
                 const std::string& name) {
  ASSERT_EQ(got.size(), want.size()) << name;
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], relative * want[i]) << name << " step " << i;
}

TEST(Train, GivesOneCurveOnEveryTopology) {
  const TrainingFiles files;
  const Outcome alone = heddle(files.train("single", {"--distributed", "{strategy: single}"}));
  ASSERT_EQ(alone.status, 0) << alone.error;
  for (const Topology& topology :
       std::vector<Topology>{{"ddp2", {"--distributed", "{strategy: ddp}", "--nproc-per-node", "2"}},
                             {"fsdp4", {"--nproc-per-node", "4"}},
                             {"hsdp", {"--nproc-per-node", "4", "--distributed.dp_replicate_size", "2"}}}) {
    const Outcome outcome = heddle(files.train(topology.name, topology.words));
    ASSERT_EQ(outcome.status, 0) << topology.name << outcome.error;
    const std::string metrics = files.path(topology.name + "/training.jsonl");
    expect_near(column(metrics, "loss"), column(files.path("single/training.jsonl"), "loss"), 2e-5,
                topology.name);
    expect_near(column(metrics, "grad_norm"), column(files.path("single/training.jsonl"), "grad_norm"), 2e-4,
                topology.name);
  }
}

TEST(Train, ValidatesOnItsOwnSetsAndWritesTheirFiles) {
  const TrainingFiles files;
  const std::string set = "{file_pattern: " + files.path("train.bin") + ", seq_len: 16}";
  files.write("more.yaml", read_text(files.path("run.yaml")) + "validation_dataset: " + set +
                               "\nvalidation_dataset_again: " + set + "\n");
  const Outcome outcome = heddle({"train", files.path("more.yaml"), "--checkpoint.checkpoint_dir",
                                  files.path("run"), "--step_scheduler.val_every_steps", "5"});
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(column(files.path("run/validation.jsonl"), "step"), ElementsAre(4, 9, 11));
  EXPECT_EQ(column(files.path("run/validation.jsonl"), "loss"),
            column(files.path("run/validation_again.jsonl"), "loss"));
  EXPECT_THAT(outcome.out, HasSubstr("validation again  step 12"));
}

TEST(Train, TrainsOnTheRestOfAnEpochOnAnyTopology) {
  const TrainingFiles files;
  const Words steps = {"--step_scheduler.max_steps",
                       "none",
                       "--dataset.seq_len",
                       "600",
                       "--model.config.max_position_embeddings",
                       "600",
                       "--distributed",
                       "{strategy: ddp}",
                       "--step_scheduler.local_batch_size",
                       "1"};
  Words two = steps;
  two.insert(two.end(), {"--nproc-per-node", "4"});
  ASSERT_EQ(heddle(files.train("one", steps)).status, 0);
  ASSERT_EQ(heddle(files.train("four", two)).status, 0);
  const std::vector<double> tokens = column(files.path("one/training.jsonl"), "num_label_tokens");
  EXPECT_LT(tokens.back(), tokens.front());  // the last step is smaller
  expect_near(column(files.path("four/training.jsonl"), "loss"),
              column(files.path("one/training.jsonl"), "loss"), 2e-5, "tail");
}

TEST(Train, ContinuesFromAModelThatItWrote) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("first")).status, 0);
  const std::string model = files.path("first/LATEST/model/consolidated");
  files.write("next.yaml", "model: {_target_: from_pretrained, pretrained_model_name_or_path: " + model +
                               "}\ndataset: {file_pattern: " + files.path("train.bin") +
                               ", seq_len: 16}\nstep_scheduler: {global_batch_size: 8, max_steps: 1}\n"
                               "distributed: {strategy: single}\ncheckpoint: {checkpoint_dir: " +
                               files.path("next") + "}\n");
  const Outcome outcome = heddle({"train", files.path("next.yaml")});
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_LT(column(files.path("next/training.jsonl"), "loss").front(),
            column(files.path("first/training.jsonl"), "loss").front() - 0.3);
  EXPECT_TRUE(std::filesystem::exists(files.path("next/LATEST/model/consolidated/heddle_tokenizer.json")));
}

TEST(Train, ReportsWhatItSaves) {
  const TrainingFiles files;
  const std::string last = files.path("run/epoch_0_step_11");
  EXPECT_THAT(heddle(files.train("run", {"--step_scheduler.ckpt_every_steps", "5"})).out,
              HasSubstr("saves   checkpoints during and at the end of the run, the last in " + last +
                        " (its name counts steps from 0); the last with an exported model\n"));
  for (const auto& [word, text] :
       {std::pair{"final", "; the last with an exported model\n"},
        std::pair{"every", "; each with an exported model\n"}, std::pair{"false", "\n"}}) {
    std::filesystem::remove_all(files.path("run"));
    const Outcome outcome = heddle(files.train("run", {"--checkpoint.save_consolidated", word}));
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_THAT(outcome.out, HasSubstr("saves   a checkpoint at the end, in " + last +
                                       " (its name counts steps from 0)" + text));
    EXPECT_EQ(std::filesystem::exists(last + "/model/consolidated"), word != std::string("false"));
  }
}

TEST(Train, WarnsOfStorageThatLosesSmallUpdates) {
  const TrainingFiles files;
  const std::string warning = "warning: parameters are stored in bfloat16 without master weights";
  const Outcome without = heddle(files.train("run", {"--model.dtype", "bfloat16"}));
  EXPECT_EQ(without.status, 0) << without.error;
  EXPECT_THAT(without.error, HasSubstr(warning));
  const Outcome with =
      heddle(files.train("two", {"--model.dtype", "bfloat16", "--optimizer.master_weights", "true"}));
  EXPECT_EQ(with.status, 0) << with.error;
  EXPECT_THAT(with.error, ::testing::Not(HasSubstr(warning)));
  EXPECT_LT(column(files.path("two/training.jsonl"), "loss").back(),
            column(files.path("two/training.jsonl"), "loss").front() - 0.3);
  const Outcome strategys = heddle(files.train(
      "three", {"--model.dtype", "bfloat16", "--distributed",
                "{strategy: megatron_fsdp, preserve_fp32_weights: true}", "--nproc-per-node", "2"}));
  EXPECT_EQ(strategys.status, 0) << strategys.error;
  EXPECT_THAT(strategys.error, ::testing::Not(HasSubstr(warning)));
}

TEST(Train, TakesItsRanksFromALauncher) {
  const TrainingFiles files;
  Started first(files.train("run"), place(0, 2)), second(files.train("run"), place(1, 2));
  const Outcome outcome = first.wait();
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(second.wait().status, 0);
  EXPECT_THAT(outcome.out, HasSubstr("fsdp2 on 2 ranks"));
  EXPECT_EQ(column(files.path("run/training.jsonl"), "step").size(), 12u);
}

TEST(Examples, Train) {
  const TrainingFiles files;
  const std::string examples = HEDDLE_SOURCE_DIR "/examples/";
  for (const auto& [name, ranks] :
       {std::pair{"single", "1"}, std::pair{"ddp", "2"}, std::pair{"fsdp2", "2"}, std::pair{"hsdp", "4"},
        std::pair{"pipeline", "4"}, std::pair{"tensor", "2"}, std::pair{"quickstart", "2"},
        std::pair{"megatron_fsdp", "2"}, std::pair{"megatron", "4"}}) {
    Words words = {"train",
                   examples + name + ".yaml",
                   "--nproc-per-node",
                   ranks,
                   "--step_scheduler.max_steps",
                   "2",
                   "--step_scheduler.val_every_steps",
                   "none",
                   "--lr_scheduler",
                   "none",
                   "--dataset.file_pattern",
                   files.path("train.bin"),
                   "--validation_dataset",
                   "none",
                   "--checkpoint.checkpoint_dir",
                   files.path(name)};
    const Outcome outcome = heddle(words);
    EXPECT_EQ(outcome.status, 0) << name << outcome.error;
    EXPECT_EQ(column(files.path(std::string(name) + "/training.jsonl"), "step").size(), 2u) << name;
  }
}

TEST(Examples, ResolveTheirFilesFromAnyDirectory) {
  const TrainingFiles files;
  std::filesystem::create_directories(files.path("examples"));
  std::filesystem::create_directories(files.path("build/quickstart"));
  std::filesystem::copy(HEDDLE_SOURCE_DIR "/examples/single.yaml", files.path("examples"));
  std::filesystem::copy(files.path("train.bin"), files.path("build/quickstart"));
  const Outcome outcome = heddle({"train", files.path("examples/single.yaml"), "--step_scheduler.max_steps",
                                  "2", "--lr_scheduler", "none"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(column(files.path("build/examples/single/training.jsonl"), "step").size(), 2u);
}

}  // namespace
}  // namespace flow

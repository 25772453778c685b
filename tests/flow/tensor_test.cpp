// `heddle train` over ranks of tp, run as a program: the model it writes is that of one rank.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "flow/stops/started.h"
#include "training_files.h"

namespace flow {
namespace {

using ::testing::HasSubstr;

struct Weights {
  std::string header;  // names, shapes and places
  std::vector<float> numbers;
};

Weights weights_of(const std::string& run) {
  const std::string file = read_text(run + "/LATEST/model/consolidated/model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  Weights out{file.substr(sizeof length, length), {}};
  out.numbers.resize((file.size() - sizeof length - length) / sizeof(float));
  std::memcpy(out.numbers.data(), file.data() + sizeof length + length, out.numbers.size() * sizeof(float));
  return out;
}

class TensorRun : public ::testing::Test {
 protected:
  // Twelve steps of the example in fp32, with more words.
  Outcome train(const std::string& run, const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"train",
                                      HEDDLE_SOURCE_DIR "/examples/tensor.yaml",
                                      "--step_scheduler.max_steps",
                                      "12",
                                      "--lr_scheduler",
                                      "none",
                                      "--dataset.file_pattern",
                                      files_.path("train.bin"),
                                      "--checkpoint.checkpoint_dir",
                                      files_.path(run)};
    words.insert(words.end(), more.begin(), more.end());
    return heddle(words);
  }

  void expect_single(const std::string& run) const {
    const Outcome single = train("single", {"--distributed", "{strategy: single}"});
    ASSERT_EQ(single.status, 0) << single.error;
    const auto want = column(files_.path("single/training.jsonl"), "loss");
    const auto got = column(files_.path(run + "/training.jsonl"), "loss");
    ASSERT_EQ(got.size(), 12u);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i] / want[i], 1, 2e-5) << "step " << i;
    const Weights mine = weights_of(files_.path(run)), its = weights_of(files_.path("single"));
    EXPECT_EQ(mine.header, its.header);
    ASSERT_EQ(mine.numbers.size(), its.numbers.size());
    float apart = 0;
    for (size_t i = 0; i < mine.numbers.size(); ++i)
      apart = std::max(apart, std::abs(mine.numbers[i] - its.numbers[i]));
    EXPECT_LT(apart, 2e-4f);
  }

  TrainingFiles files_;
};

TEST_F(TensorRun, WritesTheModelOfOneRank) {
  const Outcome two = train("two", {"--nproc-per-node", "2", "--distributed.mp_policy",
                                    "{param_dtype: float32, reduce_dtype: float32}"});
  ASSERT_EQ(two.status, 0) << two.error;
  expect_single("two");
}

TEST_F(TensorRun, WritesTheModelOfOneRankUnderDdp) {
  const Outcome four =
      train("four", {"--nproc-per-node", "4", "--distributed", "{strategy: ddp, tp_size: 2}"});
  ASSERT_EQ(four.status, 0) << four.error;
  expect_single("four");
}

TEST_F(TensorRun, RefusesHeadsBeforeItStarts) {
  const Outcome outcome = train("run", {"--nproc-per-node", "4", "--distributed", "{tp_size: 4}"});
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.error, HasSubstr("num_key_value_heads (2) must be divisible by TP size (4)"));
}

}  // namespace
}  // namespace flow

// Runs on blends of Megatron's token files: one curve on any ranks, a separate validation part, resuming.
#include <gmock/gmock.h>

#include <fstream>
#include <vector>

#include "flow/training_files.h"

namespace flow {
namespace {

using ::testing::HasSubstr;

template <class T>
void append(std::ofstream& out, const std::vector<T>& values) {
  out.write(reinterpret_cast<const char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(T)));
}

class BlendRun : public ::testing::Test {
 protected:
  BlendRun() {
    write("a", 40, 3);
    write("b", 60, 11);
  }

  // Writes NAME.bin and NAME.idx with documents of uint16 tokens.
  void write(const std::string& name, int documents, uint32_t state) const {
    std::ofstream bin(files_.path(name + ".bin"), std::ios::binary),
        idx(files_.path(name + ".idx"), std::ios::binary);
    std::vector<int32_t> lengths;
    std::vector<int64_t> places, begins{0};
    int64_t bytes = 0;
    for (int document = 0; document < documents; ++document) {
      std::vector<uint16_t> tokens(5 + (state >> 20) % 30);
      for (uint16_t& token : tokens)
        token = static_cast<uint16_t>((state = state * 1664525u + 1013904223u) >> 25);
      append(bin, tokens);
      lengths.push_back(static_cast<int32_t>(tokens.size()));
      places.push_back(bytes);
      begins.push_back(document + 1);
      bytes += static_cast<int64_t>(tokens.size() * sizeof(uint16_t));
    }
    idx.write("MMIDIDX\0\0", 9);
    append<uint64_t>(idx, {1});
    append<uint8_t>(idx, {8});
    append<uint64_t>(idx, {lengths.size(), begins.size()});
    append(idx, lengths);
    append(idx, places);
    append(idx, begins);
  }

  std::string set(const std::string& more = "") const {
    return "{_target_: x.MegatronPretraining, paths: [30, " + files_.path("a") + ", 70, " + files_.path("b") +
           "], seq_length: 16, split: \"0.8, 0.2, 0\"" + more + "}";
  }
  std::vector<double> trained(const std::string& name, const Words& more = {}) const {
    const Words words =
        plus(files_.train(name, {"--dataset", set(), "--dataloader", "{dataloader_type: single}",
                                 "--validation_dataset", set(", num_val_samples: 5"),
                                 "--step_scheduler.val_every_steps", "6", "--step_scheduler.max_steps", "12",
                                 "--step_scheduler.num_epochs", "9"}),
             more);
    const Outcome outcome = heddle(words);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return column(files_.path(name + "/training.jsonl"), "loss");
  }
  static void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-5 * want[i]) << i;
  }

  TrainingFiles files_;
};

TEST_F(BlendRun, GivesOneCurveOnAnyRanks) {
  const auto one = trained("one");
  ASSERT_EQ(one.size(), 12u);
  EXPECT_LT(one.back(), one.front());
  expect_near(trained("two", {"--nproc-per-node", "2"}), one);
  expect_near(trained("stages", {"--nproc-per-node", "2", "--distributed.pp_size", "2",
                                 "--distributed.pipeline", "{pp_schedule: 1f1b, pp_microbatch_size: 1}"}),
              one);
  const auto losses = column(files_.path("one/validation.jsonl"), "loss");
  EXPECT_EQ(losses.size(), 2u);
  expect_near(column(files_.path("two/validation.jsonl"), "loss"), losses);
}

TEST_F(BlendRun, ResumesToTheSameBits) {
  const auto whole = trained("whole");
  // Requests as many samples as the whole run, so that the index is equal.
  trained("run", {"--step_scheduler.max_steps", "6", "--dataset", set(", num_train_samples: 96")});
  EXPECT_EQ(trained("run", {"--dataset", set(", num_train_samples: 96")}), whole);
}

TEST_F(BlendRun, RefusesToResumeWithOtherSamples) {
  trained("run", {"--step_scheduler.max_steps", "6"});
  const Outcome outcome =
      heddle(files_.train("run", {"--dataset", set(), "--step_scheduler.max_steps", "12"}));
  EXPECT_EQ(outcome.status, 2) << outcome.out;
  EXPECT_THAT(outcome.error, HasSubstr("samples"));
}

}  // namespace
}  // namespace flow

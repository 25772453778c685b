// Data sets of texts in whole runs: prepared once, shown, trained on in every form; refusals.
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "flow/data/texts.h"
#include "flow/stops/started.h"
#include "tests/main/with_all.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("Texts.GiveOneCurve*");

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(Texts, ArePreparedOnceAndThenReadWithoutPython) {
  const Outcome first = run(words("first"));
  EXPECT_EQ(first.status, 0) << first.error;
  EXPECT_THAT(first.error, HasSubstr("preparing make_squad_dataset of " + files_.path("rows.jsonl")));
  EXPECT_THAT(first.error,
              HasSubstr("prepared make_squad_dataset of " + files_.path("rows.jsonl") + ": 30 samples, "));
  const Outcome second = run(words("second"), "/nonexistent/python");
  EXPECT_EQ(second.status, 0) << second.error;
  EXPECT_THAT(second.error, Not(HasSubstr("prepar")));
  EXPECT_EQ(without_clock(files_.path("first/training.jsonl")),
            without_clock(files_.path("second/training.jsonl")));
  EXPECT_THAT(second.out, HasSubstr("30 samples of at most"));
}

// The tokenizer of the fixture adds no end token, and questions have no template.
TEST_F(Texts, WarnWhenNoEndTokenIsTrained) {
  const std::string line =
      "dataset: none of the labels of the 30 samples is the end token 1, so the model does not learn to end "
      "an answer; "
      "set add_eos_token: true in dataset.tokenizer, or use a chat template that ends each answer with the "
      "end token";
  for (int start = 0; start < 2; ++start)
    EXPECT_THAT(run(words("run" + std::to_string(start))).error, HasSubstr(line));
  const std::string with_end =
      "{_target_: nemo.squad.make_squad_dataset, dataset_name: " + files_.path("rows.jsonl") +
      ", tokenizer: {pretrained_model_name_or_path: " + files_.path("words") + ", add_eos_token: true}}";
  const Outcome ended = run(files_.train("ended", {"--dataset", with_end}));
  EXPECT_EQ(ended.status, 0) << ended.error;
  EXPECT_THAT(ended.error, ::testing::Not(HasSubstr("is the end token")));
}

TEST_F(Texts, AreReusedWhenTheirContentIsTheSame) {
  EXPECT_EQ(run(words("first")).status, 0);
  fs::rename(files_.path("rows.jsonl"), files_.path("moved.jsonl"));
  fs::create_symlink(files_.path("moved.jsonl"), files_.path("rows.jsonl"));
  EXPECT_EQ(run(words("second"), "/nonexistent/python").status, 0);
  files_.write("moved.jsonl", question_rows(31));
  const Outcome changed = run(words("third"), "/nonexistent/python");
  EXPECT_EQ(changed.status, 2);
  EXPECT_THAT(changed.error, HasSubstr("error[input] /nonexistent/python: cannot be started"));
}

TEST_F(Texts, AreReportedAsUnpreparedByCheck) {
  const Words check = {"check", files_.path("run.yaml"), "--dataset", set()};
  const Outcome before = run(check, "/nonexistent/python");
  EXPECT_EQ(before.status, 0) << before.error;
  EXPECT_THAT(before.error,
              HasSubstr("make_squad_dataset is not prepared yet; run heddle prepare or heddle train"));
  EXPECT_THAT(before.out, Not(HasSubstr("steps:")));
  EXPECT_FALSE(fs::exists(files_.path("data")));
  const Outcome made = run({"prepare", files_.path("run.yaml"), "--dataset", set()});
  EXPECT_EQ(made.status, 0) << made.error;
  EXPECT_THAT(made.out, HasSubstr(prepared().string() + ": 30 samples, "));
  EXPECT_THAT(run({"prepare", files_.path("run.yaml"), "--dataset", set()}).out,
              HasSubstr(" tokens, already prepared\n"));
  const Outcome after = run(check);
  EXPECT_EQ(after.status, 0) << after.error;
  EXPECT_THAT(after.out, HasSubstr("steps: 4, 4 per epoch"));
  EXPECT_THAT(run({"prepare", files_.path("run.yaml")}).out, HasSubstr("nothing to prepare"));
}

TEST_F(Texts, AreShownWithTheirTrainedTokens) {
  files_.write("rows.jsonl",
               R"({"context": "warp weft", "question": "shed", "answers": {"text": ["reed loom"]}})"
               "\n");
  ASSERT_EQ(run({"prepare", files_.path("run.yaml"), "--dataset", set()}).status, 0);
  const Outcome shown = run({"data", "show", prepared().string()});
  EXPECT_EQ(shown.status, 0) << shown.error;
  EXPECT_EQ(shown.out, prepared().string() +
                           ": 1 samples, 8 tokens, 2 of them trained on, the longest sample has 8\n"
                           "--- sample 1: 8 tokens, 2 trained on\n"
                           "Context: warp weft Question: shed Answer:[[reed loom]]\n");
  const Outcome beyond = run({"data", "show", prepared().string(), "--from", "2"});
  EXPECT_EQ(beyond.status, 2);
  EXPECT_THAT(beyond.error, HasSubstr("error[usage] --from: " + prepared().string() + " has 1 samples"));
}

TEST_F(Texts, GiveOneCurveOnAnyTopologyAndPacked) {
  for (const char* key : {"loss", "grad_norm"}) {
    const double part = std::string(key) == "loss" ? 2e-5 : 2e-4;
    const auto one = trained("one", {}, key);
    expect_near(trained("two", {"--nproc-per-node", "2", "--step_scheduler.local_batch_size", "1"}, key), one,
                part);
    expect_near(trained("three", {"--nproc-per-node", "3"}, key), one, part);
    expect_near(trained("stages",
                        {"--nproc-per-node", "2", "--distributed.pp_size", "2", "--distributed.pipeline",
                         "{pp_schedule: 1f1b, pp_microbatch_size: 1}"},
                        key),
                one, part);
    expect_near(trained("context", {"--nproc-per-node", "2", "--distributed.cp_size", "2"}, key), one, part);
    expect_near(
        trained("tensor",
                {"--nproc-per-node", "2", "--distributed.tp_size", "2", "--distributed.sequence_parallel",
                 "true", "--distributed.tp_plan", "null", "--model.config.num_attention_heads", "4",
                 "--model.config.num_key_value_heads", "2"},
                key),
        trained("heads",
                {"--model.config.num_attention_heads", "4", "--model.config.num_key_value_heads", "2"}, key),
        part);
  }
}

// Packs of two passes over all samples: the mean loss of an epoch over its labels equals that of the samples.
TEST_F(Texts, ArePackedToTheSameLoss) {
  const Words whole = {"--step_scheduler.max_steps", "1", "--dataloader", "{shuffle: false}"};
  const auto alone = trained("alone", plus(whole, {"--step_scheduler.global_batch_size", "30"}));
  for (const auto& [strategy, packs] : {std::pair{"thd", "10"}, {"neat", "9"}}) {
    const auto packed =
        trained(strategy,
                plus(whole, {"--step_scheduler.global_batch_size", packs, "--step_scheduler.local_batch_size",
                             "1", "--packed_sequence",
                             std::string("{packed_sequence_size: 32, packing_strategy: ") + strategy + "}"}));
    expect_near(packed, alone, 2e-5);
  }
}

TEST_F(Texts, ResumeToTheSameBits) {
  const Words saves = {"--step_scheduler.ckpt_every_steps", "3", "--step_scheduler.max_steps", "4"};
  EXPECT_EQ(trained("whole").size(), 8u);
  trained("run", saves);
  EXPECT_EQ(trained("run").size(), 8u);
  EXPECT_EQ(without_clock(files_.path("run/training.jsonl")),
            without_clock(files_.path("whole/training.jsonl")));
}

// A model with random weights is exported with the tokenizer that it was trained with, and its end tokens.
TEST_F(Texts, AreExportedWithTheirTokenizer) {
  fs::create_directory(files_.path("model"));
  files_.write("model/config.json", R"({"model_type": "llama", "vocab_size": 256, "hidden_size": 24,
    "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 3, "max_position_embeddings": 32,
    "eos_token_id": 1, "bos_token_id": 2})");
  const Words model = {"--model", "{_target_: x.from_config, config: " + files_.path("model") + "}",
                       "--step_scheduler.max_steps", "1"};
  trained("run", model);
  const std::string exported = files_.path("run/LATEST/model/consolidated/");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    EXPECT_EQ(read_text(exported + name), read_text(files_.path(std::string("words/") + name))) << name;
  const std::string config = read_text(exported + "config.json");
  EXPECT_THAT(config, HasSubstr("\"eos_token_id\": 1"));
  EXPECT_THAT(config, HasSubstr("\"bos_token_id\": 2"));
  const Outcome said = run({"generate", files_.path("run"), "--prompt", "warp", "--max-new-tokens", "2"});
  EXPECT_EQ(said.status, 0) << said.error;
}

TEST_F(Texts, AreShownOfSeveralFiles) {
  ASSERT_EQ(run({"prepare", files_.path("run.yaml"), "--dataset", set()}).status, 0);
  const std::string file = prepared().string();
  const Outcome both = run({"data", "show", file, file, "--samples", "1"});
  EXPECT_EQ(both.status, 0) << both.error;
  const size_t first = both.out.find(file + ": 30 samples"), second = both.out.find(file + ": 30", first + 1);
  EXPECT_NE(second, std::string::npos) << both.out;
  EXPECT_THAT(both.out.substr(first, second - first), HasSubstr("--- sample 1: "));
  const Outcome wrong = run({"data", "show", file, "--sample", "1"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.error, HasSubstr("heddle data show: "));
  EXPECT_THAT(wrong.error, HasSubstr("did you mean '--samples'?"));
}

TEST_F(Texts, ArePreparedByOneOfTwoStarts) {
  const Words prepare = {"prepare", files_.path("run.yaml"), "--dataset", set()};
  const Words in = plus(environment(files_.path("slow")), {"HEDDLE_DATA=" + files_.path("data")});
  Started one(prepare, in), two(prepare, in);
  const Outcome first = one.wait(), second = two.wait();
  EXPECT_EQ(first.status, 0) << first.error;
  EXPECT_EQ(second.status, 0) << second.error;
  EXPECT_NE(first.out.find("already prepared") == std::string::npos,
            second.out.find("already prepared") == std::string::npos)
      << first.out << second.out;
}

TEST_F(Texts, LeaveNoPreparedSetWhenPreparationIsKilled) {
  const Words prepare = {"prepare", files_.path("run.yaml"), "--dataset", set()};
  for (const int signal : {SIGKILL, SIGINT}) {
    Started killed(prepare, plus(environment(files_.path("stuck")), {"HEDDLE_DATA=" + files_.path("data")}));
    ASSERT_TRUE(
        eventually([&] { return fs::exists(files_.path("data")) && !fs::is_empty(files_.path("data")); }));
    kill(killed.pid(), signal);
    EXPECT_NE(killed.wait().status, 0);
    EXPECT_EQ(prepared(), fs::path());
  }
  EXPECT_EQ(run(prepare).status, 0);
  EXPECT_NE(prepared(), fs::path());
}

TEST_F(Texts, RefuseADamagedFile) {
  ASSERT_EQ(run({"prepare", files_.path("run.yaml"), "--dataset", set()}).status, 0);
  const fs::path file = prepared();
  fs::resize_file(file, fs::file_size(file) - 3);
  const Outcome outcome = run(words("run"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error, HasSubstr(file.string() + ": is truncated or damaged"));
  EXPECT_THAT(outcome.error, HasSubstr("hint: remove the file, and run heddle prepare to make it again"));
}

TEST_F(Texts, AreReadByTheTokenizerOfARunThatIsTrainedOn) {
  fs::copy(files_.path("words"), files_.path("base"), fs::copy_options::recursive);
  files_.write("base/config.json", R"({"model_type": "llama", "vocab_size": 256, "hidden_size": 24,
    "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 3, "max_position_embeddings": 32})");
  const std::string rows =
      "{_target_: x.make_squad_dataset, dataset_name: " + files_.path("rows.jsonl") + "}";
  const auto train = [&](const std::string& name, const Words& more) {
    const Outcome outcome =
        run(plus(files_.train(name, {"--dataset", rows, "--step_scheduler.max_steps", "2"}), more));
    EXPECT_EQ(outcome.status, 0) << outcome.error;
  };
  train("first",
        {"--model", "{_target_: x.from_config, config: " + files_.path("base") + ", dtype: float32}"});
  fs::copy(
      files_.path("words"), files_.path("first/LATEST/model/.hf_metadata"),
      fs::copy_options::recursive | fs::copy_options::overwrite_existing);  // like a model with a tokenizer
  train("second", {"--model", "{_target_: x.from_pretrained, pretrained_model_name_or_path: " +
                                  files_.path("first") + ", dtype: float32}"});
}

TEST_F(Texts, PassTheKitsOfDataSets) {
  const Outcome outcome =
      run({"plugins", "check", HEDDLE_BINARY_DIR "/plugins/libheddle_squad.so", "--fields",
           "{dataset_name: " + files_.path("rows.jsonl") + ", tokenizer: " + files_.path("words") + "}"});
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.error;
}

TEST_F(Texts, NameAMissingPackage) {
  const Outcome outcome = run(words("run"), files_.path("no_packages"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error, HasSubstr("no_packages"));
  EXPECT_THAT(outcome.error, HasSubstr("tokenizers"));
  EXPECT_THAT(outcome.error, HasSubstr("pip install"));
}

TEST_F(Texts, AreRefusedWithTheirLineOrField) {
  files_.write("rows.jsonl", question_rows(3) + "{\"context\": \"warp\", \n" + question_rows(2));
  EXPECT_THAT(run(words("run")).error, HasSubstr("rows.jsonl:4"));
  files_.write("rows.jsonl", question_rows(3) + "{\"context\": \"warp\", \"question\": \"weft\"}\n");
  EXPECT_THAT(run(words("run")).error, HasSubstr("rows.jsonl:4"));
  files_.write("rows.jsonl", question_rows(3));
  const Outcome slice = run(words("run", {}, ", split: 'train[5'"));
  EXPECT_THAT(slice.error, HasSubstr("--dataset dataset.split"));
  const Outcome missing = run(plus(files_.train("run"), {"--dataset",
                                                         "{_target_: x.make_squad_dataset, dataset_name: "
                                                         "someone/missing, tokenizer: " +
                                                             files_.path("words") + "}"}));
  EXPECT_THAT(
      missing.error,
      HasSubstr("dataset.dataset_name: 'someone/missing' does not exist; heddle downloads nothing: run "
                "`hf download someone/missing --repo-type dataset`"));
}

}  // namespace
}  // namespace flow

// Answers of the running model at validation equal those of `heddle generate`, under every strategy, once per
// step.
#include <gmock/gmock.h>

#include "flow/data/texts.h"
#include "flow/stops/started.h"
#include "tests/main/with_all.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("ValidationSamples.*");

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSection = "{prompts: [\"warp we\", \"shed \\u00e9\"], max_new_tokens: 12}";

Words sampling(const TrainingFiles& files, const std::string& run, const Words& more = {}) {
  return files.train(run, plus({"--validation_samples", kSection, "--step_scheduler.val_every_steps", "2",
                                "--step_scheduler.max_steps", "4", "--step_scheduler.ckpt_every_steps", "2",
                                "--optimizer.lr", "0.03", "--model.config.num_attention_heads", "4",
                                "--model.config.num_key_value_heads", "2"},
                               more));
}

// Returns the texts of a file, in order.
std::vector<std::string> texts_of(const std::string& file) {
  const std::string all = read_text(file), begin = "\"text\":\"";
  std::vector<std::string> out;
  for (size_t at = all.find(begin); at != std::string::npos; at = all.find(begin, at)) {
    at += begin.size();
    out.push_back(all.substr(at, all.find("\",\"tokens\":", at) - at));
  }
  return out;
}

// Escapes a text as in JSON.
std::string escaped(std::string text) {
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\n");
  return text;
}

TEST(ValidationSamples, MatchGenerateUnderEveryStrategy) {
  const TrainingFiles files;
  const Outcome alone = heddle(sampling(files, "one"));
  ASSERT_EQ(alone.status, 0) << alone.error;
  const std::vector<std::string> texts = texts_of(files.path("one/samples.jsonl"));
  ASSERT_EQ(texts.size(), 4u);
  EXPECT_THAT(column(files.path("one/samples.jsonl"), "step"), ElementsAre(1, 1, 3, 3));
  EXPECT_THAT(column(files.path("one/samples.jsonl"), "tokens"), ElementsAre(12, 12, 12, 12));
  EXPECT_THAT(alone.out, HasSubstr("sample  step 2  \"warp we\" -> \"" + texts[0] + "\"\n"));
  EXPECT_THAT(alone.error, Not(HasSubstr("val_every_steps")));
  const Outcome said = heddle(
      {"generate", files.path("one"), "--prompt", "warp we", "--temperature", "0", "--max-new-tokens", "12"});
  EXPECT_EQ(escaped(said.out), "warp we" + texts[2] + "\\n") << said.error;
  const auto expect_same = [&](const std::string& run, const Words& more) {
    const Outcome outcome = heddle(sampling(files, run, more));
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_EQ(texts_of(files.path(run + "/samples.jsonl")), texts) << run;
    EXPECT_EQ(column(files.path(run + "/training.jsonl"), "loss").size(), 4u) << run;
  };
  const Words two = {"--nproc-per-node", "2"};
  expect_same("fsdp2", two);
  expect_same("ddp", plus(two, {"--distributed", "{strategy: ddp}"}));
  expect_same("megatron_fsdp", plus(two, {"--distributed", "{strategy: megatron_fsdp}"}));
  expect_same("tensor", plus(two, {"--distributed.tp_size", "2", "--distributed.sequence_parallel", "true"}));
}

// The loss curve equals that of a run without answers.
TEST(ValidationSamples, LeaveTheRunUnchanged) {
  const TrainingFiles files;
  const Words steps = {"--step_scheduler.max_steps", "4", "--nproc-per-node", "2"};
  ASSERT_EQ(heddle(sampling(files, "asked", {"--nproc-per-node", "2"})).status, 0);
  ASSERT_EQ(heddle(sampling(files, "plain", plus(steps, {"--validation_samples", "null"}))).status, 0);
  EXPECT_EQ(column(files.path("asked/training.jsonl"), "loss"),
            column(files.path("plain/training.jsonl"), "loss"));
}

// A run that ended after an answer but before the checkpoint of that step writes the answer again.
TEST(ValidationSamples, AppearOnceInAResumedRun) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(sampling(files, "whole")).status, 0);
  ASSERT_EQ(heddle(sampling(files, "cut", {"--step_scheduler.max_steps", "2"})).status, 0);
  const std::string file = files.path("cut/samples.jsonl");
  files.write("cut/samples.jsonl",
              read_text(file) + R"({"step":3,"epoch":0,"prompt":"a","text":"b","tokens":1})" + "\n");
  const Outcome again = heddle(sampling(files, "cut"));
  ASSERT_EQ(again.status, 0) << again.error;
  EXPECT_EQ(texts_of(files.path("cut/samples.jsonl")), texts_of(files.path("whole/samples.jsonl")));
}

TEST(ValidationSamples, WarnWithoutAValidation) {
  const TrainingFiles files;
  const Outcome outcome = heddle(sampling(
      files, "run",
      {"--step_scheduler.val_every_steps", "none", "--step_scheduler.validate_on_checkpoint", "false"}));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.error,
              HasSubstr("validation_samples has no effect, because this run has no validation"));
}

class SampledTexts : public Texts {
 protected:
  Words chat(const std::string& run, const Words& more = {}) const {
    return words(
        run,
        plus({"--validation_samples", "{prompts: [\"warp weft\"], chat: true, max_new_tokens: 3}",
              "--step_scheduler.val_every_steps", "4"},
             more),
        ", chat_template: \"{% for m in messages %}{{ m.role == 'user' and 'Question:' or 'Answer:' }} "
        "{{ m.content }} {% endfor %}{% if add_generation_prompt %}Answer:{% endif %}\"");
  }
};

// The data set's template is used for the samples, and exported with the model.
TEST_F(SampledTexts, UseTheGenerationPromptOfTheData) {
  const Outcome outcome = run(chat("run"));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const std::vector<std::string> texts = texts_of(files_.path("run/samples.jsonl"));
  ASSERT_FALSE(texts.empty());
  EXPECT_THAT(read_text(files_.path("run/LATEST/model/consolidated/chat_template.jinja")),
              HasSubstr("{% if add_generation_prompt %}Answer:{% endif %}"));
  const Outcome said = run({"generate", files_.path("run"), "--chat", "--prompt", "warp weft",
                            "--temperature", "0", "--max-new-tokens", "3"});
  EXPECT_EQ(said.status, 0) << said.error;
  const auto trimmed = [](const std::string& text) {
    const size_t first = text.find_first_not_of(" \n"), last = text.find_last_not_of(" \n");
    return first == std::string::npos ? "" : text.substr(first, last - first + 1);
  };
  EXPECT_EQ(trimmed(said.out), trimmed(texts.back()));
}

TEST_F(SampledTexts, NeedPythonBeforeTheFirstStep) {
  ASSERT_EQ(run({"prepare", files_.path("run.yaml"), "--dataset", set()}).status, 0);
  const Outcome outcome = run(words("run", {"--validation_samples", "{prompts: [\"warp\"]}"}), "/no/python");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error, HasSubstr("/no/python"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("step 1/")));
}

}  // namespace
}  // namespace flow

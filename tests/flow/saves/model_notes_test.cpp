// Files of a model that exports, checkpoints and adapters copy, and files that they change.
#include <gmock/gmock.h>

#include <filesystem>

#include "flow/data/texts.h"
#include "flow/model_files.h"
#include "flow/stops/started.h"
#include "flow/training_files.h"

namespace flow {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

// Copies a model of the tests and replaces a text in its config.json.
std::string changed_copy(const TrainingFiles& files, const std::string& from, const std::string& name,
                         const std::string& was, const std::string& now) {
  fs::copy(from, files.path(name));
  std::string config = read_text(from + "/config.json");
  EXPECT_NE(config.find(was), std::string::npos) << config;
  config.replace(config.find(was), was.size(), now);
  files.write(name + "/config.json", config);
  return files.path(name);
}

TEST(ModelNotes, KeepNonFiniteNumbers) {
  const TrainingFiles files;
  const std::string model = changed_copy(files, kGolden + "llama_odd", "model", "\"vocab_size\"",
                                         "\"limits\": [-Infinity, Infinity, NaN],\n  \"vocab_size\"");
  files.write("model/generation_config.json", "{\"length_penalty\": -Infinity}\n");
  const Outcome run = heddle(train(files, "run", model, {"--checkpoint.v4_compatible", "true"}));
  ASSERT_EQ(run.status, 0) << run.error;
  const std::string exported = files.path("run/LATEST/model/consolidated");
  const std::string words = "\"limits\": [\n    -Infinity,\n    Infinity,\n    NaN\n  ]";
  EXPECT_THAT(read_text(exported + "/config.json"), HasSubstr(words));
  EXPECT_EQ(read_text(exported + "/generation_config.json"), "{\"length_penalty\": -Infinity}\n");
  ASSERT_EQ(heddle({"convert", files.path("run"), files.path("made"), "--dtype", "bfloat16"}).status, 0);
  EXPECT_THAT(read_text(files.path("made/config.json")), HasSubstr(words));
  ASSERT_EQ(heddle({"convert", files.path("made"), files.path("sharded")}).status, 0);
  EXPECT_EQ(read_text(files.path("sharded/.hf_metadata/config.json")),
            read_text(files.path("made/config.json")));
}

TEST(ModelNotes, AreRefusedBeforeTheFirstStepWhenNotExportable) {
  const TrainingFiles files;
  fs::copy(kGolden + "llama_odd", files.path("model"));
  files.write("model/generation_config.json", "[]");
  const Outcome run = heddle(train(files, "run", files.path("model")));
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(run.error, "error[input] " + files.path("model/generation_config.json") +
                           ": is not a JSON object\n  hint: copy the file again\n");
  EXPECT_FALSE(fs::exists(files.path("run/training.jsonl")));
}

// Like transformers 5: the run equals one of the same files with tie_word_embeddings: false.
TEST(ModelNotes, MarkASeparateHeadAsUntied) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("base", {"--step_scheduler.max_steps", "1"})).status, 0);
  const std::string untied = files.path("base/LATEST/model/consolidated");
  const std::string tied =
      changed_copy(files, untied, "tied", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  const Outcome one = heddle(train(files, "one", untied)), other = heddle(train(files, "other", tied));
  ASSERT_EQ(other.status, 0) << other.error;
  EXPECT_THAT(one.error, Not(HasSubstr("tie_word_embeddings")));
  const std::string warning =
      "warning: " + tied + "/config.json says tie_word_embeddings: true, but lm_head.weight";
  EXPECT_THAT(other.error, HasSubstr(warning));
  EXPECT_EQ(column(files.path("one/training.jsonl"), "loss"),
            column(files.path("other/training.jsonl"), "loss"));
  expect_same_files(files.path("one/LATEST/model/consolidated"),
                    files.path("other/LATEST/model/consolidated"));
  const Outcome converted = heddle({"convert", tied, files.path("sharded")});
  EXPECT_THAT(converted.error, HasSubstr(warning));
  ASSERT_EQ(heddle({"convert", files.path("sharded"), files.path("back")}).status, 0);
  expect_same_files(untied, files.path("back"));
}

// match_all_linear adapts a tied head: the run's own adapter can be used as a model everywhere.
TEST(ModelNotes, UntieTheHeadOfAnAdapterOnATiedHead) {
  const TrainingFiles files;
  fs::copy(kGolden + "llama_tied", files.path("base"));
  const Words words = {"--model",
                       "{pretrained_model_name_or_path: " + files.path("base/../base") + "}",
                       "--dataset",
                       "{_target_: MockIterableDataset, vocab_size: 64, seq_len: 16, num_samples: 64}",
                       "--peft",
                       "{match_all_linear: true, dim: 2, alpha: 4}",
                       "--step_scheduler.max_steps",
                       "2"};
  const Outcome run = heddle(files.train("run", words));
  ASSERT_EQ(run.status, 0) << run.error;
  const Outcome generated = heddle(
      {"generate", files.path("run"), "--tokens", "1,2,3", "--max-new-tokens", "2", "--temperature", "0"});
  EXPECT_EQ(generated.status, 0) << generated.error;
  EXPECT_THAT(read_text(files.path("run/LATEST/model/adapter_config.json")),
              HasSubstr("\"base_model_name_or_path\": \"" + files.path("base") + "\""));
  const Outcome converted = heddle({"convert", files.path("run"), files.path("made")});
  ASSERT_EQ(converted.status, 0) << converted.error;
  EXPECT_THAT(read_text(files.path("made/config.json")), HasSubstr("\"tie_word_embeddings\": false"));
  EXPECT_THAT(read_text(files.path("made/model.safetensors")), HasSubstr("\"lm_head.weight\""));
  EXPECT_EQ(heddle({"generate", files.path("made"), "--tokens", "1,2,3", "--max-new-tokens", "2",
                    "--temperature", "0"})
                .out,
            generated.out);
}

using ModelNotesOfTexts = Texts;

TEST_F(ModelNotesOfTexts, HoldTheNamedTemplatesAndTheEndTokenOfTheData) {
  fs::create_directory(files_.path("words/additional_chat_templates"));
  files_.write("words/chat_template.jinja", "{% for m in messages %}{{ m['content'] }} {% endfor %}");
  files_.write("words/additional_chat_templates/tool_use.jinja", "{{ tools }}");
  ASSERT_EQ(run(words("run")).status, 0);
  const std::string exported = files_.path("run/LATEST/model/consolidated");
  EXPECT_EQ(read_text(exported + "/additional_chat_templates/tool_use.jinja"), "{{ tools }}");
  EXPECT_THAT(read_text(exported + "/config.json"), HasSubstr("\"eos_token_id\": 1"));
  ASSERT_EQ(run({"convert", files_.path("run"), files_.path("made")}).status, 0);
  EXPECT_EQ(read_text(files_.path("made/additional_chat_templates/tool_use.jinja")), "{{ tools }}");
  ASSERT_EQ(run({"convert", files_.path("made"), files_.path("sharded")}).status, 0);
  EXPECT_TRUE(fs::exists(files_.path("sharded/.hf_metadata/additional_chat_templates/tool_use.jinja")));
  ASSERT_EQ(run(words("adapter", {"--peft", "{dim: 2}"})).status, 0);
  EXPECT_EQ(read_text(files_.path("adapter/LATEST/model/additional_chat_templates/tool_use.jinja")),
            "{{ tools }}");
}

TEST_F(ModelNotesOfTexts, AreShownAsInTheRecipe) {
  const Words prepare = {"prepare", files_.path("run.yaml"), "--dataset", set()};
  ASSERT_EQ(run(prepare).status, 0);
  files_.write("rows.jsonl", question_rows(4));
  const Outcome before = run({"data", "show", files_.path("run.yaml"), "--dataset", set()});
  EXPECT_EQ(before.status, 2);
  EXPECT_THAT(before.error, HasSubstr("make_squad_dataset is not prepared yet"));
  ASSERT_EQ(run(prepare).status, 0);
  const Outcome shown = run({"data", "show", files_.path("run.yaml"), "--dataset", set(), "--samples", "1"});
  EXPECT_EQ(shown.status, 0) << shown.error;
  EXPECT_THAT(shown.out, HasSubstr(": 4 samples, "));
  EXPECT_THAT(shown.out, Not(HasSubstr(": 30 samples, ")));
  const Outcome none = run({"data", "show", files_.path("run.yaml")});
  EXPECT_EQ(none.status, 2);
  EXPECT_EQ(none.error, "error[usage] " + files_.path("run.yaml") +
                            ": has no data set of texts, so there are no samples to show\n"
                            "  hint: use a recipe whose dataset has texts\n");
  const Outcome file = run({"data", "show", prepared().string(), "--dataset.split", "train"});
  EXPECT_EQ(file.status, 2);
  EXPECT_EQ(file.error, "error[usage] --dataset.split: overrides a value of a recipe, but " +
                            prepared().string() +
                            " is a file of samples\n  hint: give the recipe: heddle data show RUN.yaml\n");
}

std::string model_line(const Outcome& outcome) {
  const size_t begin = outcome.out.find("  model   ");
  return begin == std::string::npos ? outcome.error
                                    : outcome.out.substr(begin, outcome.out.find('\n', begin) - begin);
}

TEST(Header, CountsTheStudentAlone) {
  const TrainingFiles files;
  const Words student = {"--model",
                         "{pretrained_model_name_or_path: " + kGolden + "llama, dtype: float32}",
                         "--dataset",
                         "{_target_: MockIterableDataset, vocab_size: 64, seq_len: 16, num_samples: 64}",
                         "--step_scheduler.max_steps",
                         "1"};
  const Outcome alone = heddle(files.train("alone", student));
  const Outcome distilled = heddle(files.train(
      "distilled",
      plus(student, {"--recipe", "KnowledgeDistillationRecipeForNextTokenPrediction", "--teacher_model",
                     "{pretrained_model_name_or_path: " + kGolden + "llama_tied}", "--kd_ratio", "0.5"})));
  ASSERT_EQ(distilled.status, 0) << distilled.error;
  EXPECT_EQ(model_line(distilled), model_line(alone));
  EXPECT_THAT(model_line(alone), HasSubstr(" parameters, float32, from "));
}

TEST(Header, NamesADifferentDtypeOfProducts) {
  const TrainingFiles files;
  const Outcome run =
      heddle(files.train("run", {"--step_scheduler.max_steps", "1", "--distributed", "{strategy: fsdp2}"}));
  ASSERT_EQ(run.status, 0) << run.error;
  EXPECT_THAT(model_line(run), HasSubstr(" parameters, float32 with products in bfloat16, random weights"));
}

}  // namespace
}  // namespace flow

// Refused sets of texts: of another run, not regular files, too large files.
#include <gmock/gmock.h>

#include <filesystem>

#include "flow/data/texts.h"

namespace flow {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(Texts, RefuseOtherContentOnResume) {
  trained("run", {"--step_scheduler.max_steps", "4"});
  files_.write("rows.jsonl", question_rows(29) +
                                 R"({"context": "pick", "question": "pick", "answers": {"text": ["pick"]}})");
  const Outcome resumed = run(words("run"));
  EXPECT_EQ(resumed.status, 2) << resumed.out;
  EXPECT_THAT(resumed.error,
              HasSubstr("error[config] checkpoint.restore_from: " + files_.path("run/") + "epoch_"));
  EXPECT_THAT(resumed.error, HasSubstr(" was trained on texts that differ from those that " +
                                       files_.path("rows.jsonl") + " holds now\n"));
  EXPECT_THAT(resumed.error, HasSubstr("checkpoint.accept_other_data"));
  EXPECT_THAT(resumed.error, Not(HasSubstr("prepar")));  // refused before any preparation
  EXPECT_THAT(resumed.error, Not(HasSubstr("data order")));
  const Outcome accepted = run(words("run", {"--checkpoint.accept_other_data", "true"}));
  EXPECT_EQ(accepted.status, 0) << accepted.error;
  EXPECT_THAT(accepted.error, HasSubstr(" was trained on texts that differ from those that "));
}

TEST_F(Texts, RefuseAnotherTokenizerOnResume) {
  trained("run", {"--step_scheduler.max_steps", "4"});
  std::string other = kWordsTokenizer;
  other.replace(other.find("\"pick\":12"), 9, "\"pick\":13");
  files_.write("words/tokenizer.json", other);
  const Outcome resumed = run(words("run"));
  EXPECT_EQ(resumed.status, 2) << resumed.out;
  EXPECT_THAT(resumed.error,
              HasSubstr(" was trained with another tokenizer\n  hint: resume with the same texts"));
  EXPECT_THAT(resumed.error, Not(HasSubstr("prepar")));
}

TEST_F(Texts, RefuseAnotherTruncationOnResume) {
  trained("run", {"--step_scheduler.max_steps", "4"});
  const Outcome resumed = run(words("run", {}, ", seq_length: 6, truncation: true"));
  EXPECT_EQ(resumed.status, 2) << resumed.out;
  EXPECT_THAT(resumed.error, HasSubstr(" was trained on different samples of the same texts ("));
}

TEST_F(Texts, RefuseAFileThatIsNotRegular) {
  fs::remove(files_.path("rows.jsonl"));
  fs::create_symlink("/dev/zero", files_.path("rows.jsonl"));
  EXPECT_THAT(run(words("run")).error,
              HasSubstr("'" + files_.path("rows.jsonl") + "' is a device, but must be a regular file"));
}

// The set of questions with its own script.
TEST_F(Texts, NameThePluginWhoseScriptThrows) {
  const std::string own = files_.path("own"), library = own + "/libheddle_squad.so",
                    script = own + "/squad.py";
  fs::create_directory(own);
  fs::copy_file(HEDDLE_BINARY_DIR "/plugins/libheddle_squad.so", library);
  files_.write("own/squad.py",
               "def plan(arguments, tools):\n    tools.read(arguments['split'])\n"
               "    return lambda rows: [row.question for row in rows]\n");
  const std::string said =
      ":3: line 3 of the format module throws AttributeError: 'dict' object has no attribute 'question', "
      "at " +
      files_.path("rows.jsonl") + ":1 or one of the 29 rows behind it";
  const Outcome trained = run(words("run", {"--plugins", "[" + own + "]"}));
  EXPECT_EQ(trained.status, 2) << trained.out;
  EXPECT_THAT(trained.error, HasSubstr("error[plugin_failed] " + script + said));
  const Outcome checked =
      run({"plugins", "check", library, "--fields",
           "{dataset_name: " + files_.path("rows.jsonl") + ", tokenizer: " + files_.path("words") + "}"});
  EXPECT_EQ(checked.status, 2) << checked.out;
  EXPECT_THAT(checked.out, HasSubstr("FAIL"));
  EXPECT_THAT(checked.out, HasSubstr("line 3 of the format module throws AttributeError"));
}

TEST_F(Texts, ListTheFirstTwentyBadRows) {
  std::string rows = question_rows(3);
  for (int i = 0; i < 25; ++i) rows += "{\"context\": \"pick\"}\n";
  files_.write("rows.jsonl", rows);
  const Outcome trained = run(words("run"));
  EXPECT_EQ(trained.status, 2) << trained.out;
  for (int line = 4; line < 24; ++line)
    EXPECT_THAT(trained.error, HasSubstr("error[input] " + files_.path("rows.jsonl") + ":" +
                                         std::to_string(line) + ": the row has no 'answers'\n"));
  EXPECT_THAT(trained.error,
              HasSubstr(":23: the row has no 'answers'\n  hint: These are the first 20 wrong rows; "
                        "there may be more.\n"));
  EXPECT_THAT(trained.error, Not(HasSubstr(":24: ")));
}

// A vocabulary of words in one set, and bytes in the other.
TEST_F(Texts, RefuseAnotherTokenizerForValidation) {
  const Outcome trained = run(
      words("run", {"--validation_dataset", "{file_pattern: " + files_.path("train.bin") + ", seq_len: 8}",
                    "--step_scheduler.val_every_steps", "4"}));
  EXPECT_EQ(trained.status, 2) << trained.out;
  EXPECT_THAT(trained.error, HasSubstr("the validation set contains bytes of text, but the training set "
                                       "contains tokens of the tokenizer "));
}

TEST_F(Texts, RefuseRowsLongerThanTheModelsPositions) {
  const Outcome trained = run(words("run", {"--model.config.max_position_embeddings", "6"}));
  EXPECT_EQ(trained.status, 2) << trained.out;
  EXPECT_THAT(trained.error, HasSubstr(" tokens, more than the model's 6 positions\n  hint: Cut the samples: "
                                       "dataset.truncation: true, and dataset.seq_length: 6, or increase the "
                                       "model's max_position_embeddings\n"));
}

// The only way to remove a recipe's tokenizer on the command line.
TEST_F(Texts, UseTheModelsTokenizerByDefault) {
  std::filesystem::copy(files_.path("words"), files_.path("model"));
  files_.write("model/config.json", R"({"model_type": "llama", "vocab_size": 256, "hidden_size": 24,
    "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "max_position_embeddings": 128})");
  for (const char* key : {"--dataset.tokenizer", "--dataset.tokenizer.pretrained_model_name_or_path"}) {
    const bool is_map = std::string(key).ends_with("path");
    const std::string gone = is_map ? "{pretrained_model_name_or_path: gone/away}" : "gone/away";
    const Words prepare = {"prepare",
                           files_.path("run.yaml"),
                           "--dataset",
                           "{_target_: make_squad_dataset, dataset_name: " + files_.path("rows.jsonl") +
                               ", tokenizer: " + gone + "}",
                           "--model",
                           "{pretrained_model_name_or_path: " + files_.path("model") + "}"};
    EXPECT_THAT(run(prepare).error, HasSubstr("the tokenizer 'gone/away' does not exist")) << key;
    const Outcome done = run(plus(prepare, {key, "none"}));
    EXPECT_EQ(done.status, 0) << done.error;
  }
}

// Outside of tools.each() an exception does not concern a row. A check that assumes it does ends with status
// 3.
TEST_F(Texts, FailTheCheckOfAPluginThatThrowsAValueError) {
  const std::string own = files_.path("own"), library = own + "/libheddle_squad.so";
  fs::create_directory(own);
  fs::copy_file(HEDDLE_BINARY_DIR "/plugins/libheddle_squad.so", library);
  for (const std::string body : {"lambda rows: int('many')", "lambda rows: open('/no/file')"}) {
    files_.write(
        "own/squad.py",
        "def plan(arguments, tools):\n    tools.read(arguments['split'])\n    return " + body + "\n");
    const Outcome checked =
        run({"plugins", "check", library, "--fields",
             "{dataset_name: " + files_.path("rows.jsonl") + ", tokenizer: " + files_.path("words") + "}"});
    EXPECT_EQ(checked.status, 2) << checked.out;
    EXPECT_THAT(checked.out, HasSubstr("FAIL"));
    EXPECT_THAT(checked.out, HasSubstr("line 3 of the format module throws ")) << body;
  }
}

TEST_F(Texts, RefuseAGigabyteTokenizerWithoutReadingIt) {
  const std::string file = files_.path("words/tokenizer.json");
  fs::resize_file(file, 1 << 30);  // uses no disk space
  const std::string too_large = "error[input] " + file + ": is larger than 256 MiB";
  files_.write("text", "warp weft");
  for (const Words& command :
       {words("run"),
        {"check", files_.path("run.yaml"), "--dataset", set()},
        {"data", files_.path("text"), "--tokenizer", files_.path("words"), "--out", files_.path("out.bin")}})
    EXPECT_THAT(run(command).error, HasSubstr(too_large)) << command.front();
  fs::resize_file(file, 10);
  fs::resize_file(files_.path("words/tokenizer_config.json"), 1 << 30);
  EXPECT_THAT(run(words("run")).error, HasSubstr("tokenizer_config.json: is larger than 256 MiB"));
}

}  // namespace
}  // namespace flow

// `heddle data` and `heddle generate` on text: refusals and requirements. Token ids: tests/text.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>

#include "flow/stops/started.h"
#include "model_files.h"

namespace flow {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

void expect_usage_refusal(const Outcome& outcome, const std::string& error) {
  EXPECT_EQ(outcome.status, 2) << outcome.error;
  EXPECT_EQ(outcome.error, error);
  EXPECT_EQ(outcome.out, "");
}

constexpr const char* kWordTokenizer =
    R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
"pre_tokenizer":{"type":"WhitespaceSplit"},"post_processor":null,"decoder":null,
"model":{"type":"WordLevel","vocab":{"<unk>":0,"</s>":1,"warp":2,"weft":3,"shed":4},"unk_token":"<unk>"}})";

// Writes a tokenizer of words to words/, with the end token </s>.
void write_tokenizer(const TrainingFiles& files) {
  fs::create_directory(files.path("words"));
  files.write("words/tokenizer.json", kWordTokenizer);
  files.write("words/tokenizer_config.json", R"({"eos_token": {"content": "</s>", "special": true}})");
}

// Runs heddle with the Python packages that scripts/setup downloaded.
Outcome with_tokenizers(const Words& words) {
  return heddle(words, {"PYTHONPATH=" HEDDLE_PYTHON_PACKAGES, "HEDDLE_PYTHON="});
}

TEST(Data, ReplacesAFileOnlyOnRequest) {
  const TrainingFiles files;
  files.write("out.bin", "mine");
  const Words words = {"data", files.path("text.txt"), "--out", files.path("out.bin")};
  expect_usage_refusal(
      heddle(words),
      "error[usage] " + files.path("out.bin") +
          ": already exists\n  hint: use --force to replace it, or choose another file: --out FILE\n");
  EXPECT_EQ(read_text(files.path("out.bin")), "mine");
  EXPECT_EQ(heddle(plus(words, {"--force"})).status, 0);
  EXPECT_EQ(read_text(files.path("out.bin")), read_text(files.path("train.bin")));
}

TEST(Data, RefusesANameThatAMegatronIndexHas) {
  const TrainingFiles files;
  files.write("out.idx", "");
  expect_usage_refusal(heddle({"data", files.path("text.txt"), "--out", files.path("out.bin"), "--force"}),
                       "error[usage] " + files.path("out.bin") + ": '" + files.path("out.idx") +
                           "' next to it makes readers take it for a file of Megatron's format\n"
                           "  hint: choose another file: --out FILE\n");
}

TEST(Data, ReportsTheTokensItWrote) {
  const TrainingFiles files;
  write_tokenizer(files);
  files.write("a.txt", "warp weft\nnone");
  files.write("b.txt", "shed");
  const Words words = {"data",
                       files.path("a.txt"),
                       files.path("b.txt"),
                       "--tokenizer",
                       files.path("words"),
                       "--out",
                       files.path("out.bin"),
                       "--force"};
  Outcome outcome = with_tokenizers(words);
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(outcome.out, files.path("out.bin") + ": 6 tokens of 2 bytes, 2 documents, token 1 after each\n");
  EXPECT_EQ(outcome.error, "");
  outcome = with_tokenizers(plus(words, {"--lines", "--end-token", "shed"}));
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(outcome.out, files.path("out.bin") + ": 6 tokens of 2 bytes, 3 documents, token 4 after each\n");
}

TEST(Data, NamesTheLineOfABadText) {
  const TrainingFiles files;
  write_tokenizer(files);
  files.write("a.jsonl", "{\"text\": \"warp\"}\n{\"text\": \"weft}\n");
  const Outcome outcome = with_tokenizers(
      {"data", files.path("a.jsonl"), "--tokenizer", files.path("words"), "--out", files.path("out.bin")});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error,
              StartsWith("error[input] " + files.path("a.jsonl") + ":2: the line is not JSON: "));
  EXPECT_FALSE(fs::exists(files.path("out.bin")));
  EXPECT_FALSE(fs::exists(files.path("out.bin.part")));
}

TEST(Data, NamesWhatPythonLacks) {
  const TrainingFiles files;
  write_tokenizer(files);
  const Words words = {"data",  files.path("text.txt"), "--tokenizer", files.path("words"),
                       "--out", files.path("out.bin")};
  expect_usage_refusal(
      heddle(words, {"HEDDLE_PYTHON=/no/python"}),
      "error[input] /no/python: cannot be started: No such file or directory\n"
      "  hint: install Python 3.9 or later with the package tokenizers, or set HEDDLE_PYTHON to one\n");
  const auto python = [&](const std::string& script) {
    files.write("python", "#!/bin/sh\n" + script + "\n");
    chmod(files.path("python").c_str(), 0755);
    return heddle(words, {"HEDDLE_PYTHON=" + files.path("python")});
  };
  const Outcome bare = python("exec python3 -I -S \"$@\"");
  EXPECT_EQ(bare.status, 2);
  EXPECT_THAT(bare.error, StartsWith("error[input] " + files.path("python") + ": Python 3."));
  EXPECT_THAT(
      bare.error,
      HasSubstr(" has no package tokenizers: No module named 'tokenizers'\n"
                "  hint: python3 -m pip install tokenizers; or set HEDDLE_PYTHON to a Python that has it\n"));
  const Outcome ended = python("exit 3");
  EXPECT_EQ(ended.status, 1);
  EXPECT_EQ(ended.error,
            "error[internal] " + files.path("python") +
                ": the tokenizer's process exited with status 3\n  hint: see its message above\n");
  const Outcome killed = python("kill -9 $$");
  EXPECT_EQ(killed.status, 1);
  EXPECT_EQ(killed.error, "error[internal] " + files.path("python") +
                              ": the tokenizer's process was killed by signal 9\n  hint: if memory ran out, "
                              "use smaller documents: --lines, or JSONL\n");
}

TEST(Data, NamesWhatTheTokenizerLacks) {
  const TrainingFiles files;
  const auto refusal = [&](const Words& more = {}) {
    return with_tokenizers(plus(
        {"data", files.path("text.txt"), "--tokenizer", files.path("words"), "--out", files.path("out.bin")},
        more));
  };
  expect_usage_refusal(refusal(), "error[input] " + files.path("words") +
                                      ": is not a directory\n  hint: use the directory of a Hugging Face "
                                      "model with its tokenizer.json\n");
  fs::create_directory(files.path("words"));
  expect_usage_refusal(refusal(), "error[input] " + files.path("words") +
                                      ": contains no tokenizer.json\n  hint: write one with transformers: "
                                      "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)\n");
  files.write("words/tokenizer.json", "{");
  EXPECT_THAT(refusal().error, StartsWith("error[input] " + files.path("words/tokenizer.json") +
                                          ": the library tokenizers fails: "));
  files.write("words/tokenizer.json", kWordTokenizer);
  const std::string hint = "\n  hint: set the token between documents with --end-token TOKEN\n";
  expect_usage_refusal(refusal(),
                       "error[input] " + files.path("words") +
                           ": its end token is unknown: tokenizer_config.json, special_tokens_map.json, "
                           "generation_config.json and config.json name no token of the vocabulary" +
                           hint);
  expect_usage_refusal(
      refusal({"--end-token", "<eos>"}),
      "error[input] " + files.path("words/tokenizer.json") + ": has no token '<eos>'" + hint);
  files.write("words/tokenizer_config.json", R"({"eos_token": "<end>"})");
  expect_usage_refusal(refusal(), "error[input] " + files.path("words/tokenizer.json") +
                                      ": has no token '<end>', which the model's files name as its end" +
                                      hint);
  files.write("words/tokenizer_config.json", "[]");
  expect_usage_refusal(refusal(), "error[input] " + files.path("words/tokenizer_config.json") +
                                      ": is not a JSON object\n  hint: copy the file again\n");
}

TEST(Data, FindsTheEndTokenInEachOfItsPlaces) {
  const TrainingFiles files;
  write_tokenizer(files);
  files.write("a.txt", "warp");
  const auto end = [&] {
    return with_tokenizers({"data", files.path("a.txt"), "--tokenizer", files.path("words"), "--out",
                            files.path("out.bin"), "--force"})
        .out;
  };
  fs::remove(files.path("words/tokenizer_config.json"));
  files.write("words/config.json", R"({"eos_token_id": 2})");
  EXPECT_THAT(end(), HasSubstr("token 2 after each"));
  files.write("words/generation_config.json",
              R"({"eos_token_id": [77, 3, 4]})");  // 77 is outside the vocabulary
  EXPECT_THAT(end(), HasSubstr("token 3 after each"));
  files.write("words/special_tokens_map.json", R"({"eos_token": "shed"})");
  EXPECT_THAT(end(), HasSubstr("token 4 after each"));
  files.write("words/tokenizer_config.json", R"({"eos_token": "</s>"})");
  EXPECT_THAT(end(), HasSubstr("token 1 after each"));
}

// Writes bytes within the golden models' 64 tokens to digits.bin.
void write_digits(const TrainingFiles& files) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += std::to_string(i * i) + " ";
  files.write("digits.txt", text);
  ASSERT_EQ(heddle({"data", files.path("digits.txt"), "--out", files.path("digits.bin")}).status, 0);
}

TEST(Generate, TakesTextForAPretrainedModelThatLearnedBytes) {
  const TrainingFiles files;
  write_digits(files);
  const Outcome trained =
      heddle(train(files, "run", kGolden + "llama", {"--dataset.file_pattern", files.path("digits.bin")}));
  ASSERT_EQ(trained.status, 0) << trained.error;
  const Outcome text = heddle({"generate", files.path("run"), "--prompt", "12 ", "--max-new-tokens", "3"});
  EXPECT_EQ(text.status, 0) << text.error;
  EXPECT_THAT(text.out, StartsWith("12 "));
}

TEST(Generate, ReportsAMissingTokenizer) {
  const TrainingFiles files;
  const std::string model = kGolden + "llama";
  expect_usage_refusal(
      heddle({"generate", model, "--prompt", "a"}),
      "error[usage] " + model +
          ": the model has no tokenizer.json and was not trained on bytes of text\n"
          "  hint: set --tokenizer DIR to the directory of one, or give token ids: --tokens 1,2,3\n");
  write_tokenizer(files);
  expect_usage_refusal(
      with_tokenizers({"generate", model, "--tokenizer", files.path("words"), "--prompt", "a\xff"}),
      "error[usage] heddle generate: byte 2 of the prompt is not UTF-8\n");
  const Outcome text = with_tokenizers({"generate", model, "--tokenizer", files.path("words"), "--prompt",
                                        "warp nothing shed", "--max-new-tokens", "0"});
  EXPECT_EQ(text.out, "warp <unk> shed\n") << text.error;
}

TEST(Generate, EndsAtTheModelsEndToken) {
  const TrainingFiles files;
  fs::copy(kGolden + "llama", files.path("model"));
  const auto generated = [&] {
    return heddle({"generate", files.path("model"), "--tokens", "5,6", "--max-new-tokens", "8",
                   "--temperature", "0"})
        .out;
  };
  const std::string all = generated();
  const std::string first = all.substr(4, all.find(',', 4) - 4);
  ASSERT_NE(all, "5,6," + first + "\n");
  for (const std::string& end : {first, "[700, " + first + "]"}) {
    files.write("model/generation_config.json", "{\"eos_token_id\": " + end + "}");
    EXPECT_EQ(generated(), "5,6," + first + "\n");
  }
}

TEST(Train, WarnsOfBytesForAModelWithATokenizer) {
  const TrainingFiles files;
  fs::copy(kGolden + "llama", files.path("words"));
  files.write("words/tokenizer.json", kWordTokenizer);
  write_digits(files);
  const Outcome outcome =
      heddle(train(files, "run", files.path("words"), {"--dataset.file_pattern", files.path("digits.bin")}));
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(
      outcome.out + outcome.error,
      HasSubstr("warning: the dataset's tokens are bytes of text, but the model has a tokenizer.json: "
                "tokenize the text with heddle data --tokenizer " +
                files.path("words") + "\n"));
  EXPECT_TRUE(fs::exists(files.path("run/LATEST/model/consolidated/tokenizer.json")));
  EXPECT_FALSE(fs::exists(files.path("run/LATEST/model/consolidated/heddle_tokenizer.json")));
}

TEST(Generate, ContinuesATextOfBytesTheSameEachTime) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("run", {"--nproc-per-node", "2"})).status, 0);
  const Words words = {"generate", files.path("run"), "--prompt", "warp ", "--max-tokens",
                       "12",       "--seed",          "3"};
  const Outcome one = heddle(words), two = heddle(words);
  ASSERT_EQ(one.status, 0) << one.error;
  EXPECT_THAT(one.out, ::testing::StartsWith("warp "));
  EXPECT_EQ(one.out.size(), 5u + 12u + 1u);
  EXPECT_EQ(one.out, two.out);
  const Outcome ids = heddle({"generate", files.path("run/LATEST/model/consolidated"), "--tokens", "119,97",
                              "--max-tokens", "3", "--temperature", "0"});
  EXPECT_THAT(ids.out, ::testing::MatchesRegex("119,97(,[0-9]+)(,[0-9]+)(,[0-9]+)\n")) << ids.error;
}

}  // namespace
}  // namespace flow

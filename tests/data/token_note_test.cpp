// Digests of tokens, the note beside a token file, and limits on the number of samples.
#include "lib/data/tokens/token_note.h"

#include <gmock/gmock.h>

#include "lib/data/tokens/token_check.h"
#include "lib/data/tokens/token_dataset.h"
#include "lib/data/tokens/token_files.h"
#include "lib/data/tokens/token_header.h"
#include "lib/run/preflight/checks.h"
#include "tests/data/token_files.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

std::filesystem::path write_tokens(const std::filesystem::path& file, const std::vector<uint16_t>& tokens) {
  std::ofstream out(file, std::ios::binary);
  append_values(out, tokens);
  return file;
}

TokenFile bare_file(const std::filesystem::path& file) {
  return TokenFile(file, TokenType::uint16);
}

TEST(TokenDigest, IsOfTheTokensAndNotOfTheFile) {
  const ScratchDirectory scratch;
  std::vector<uint16_t> tokens(5'000'000);  // larger than the limit up to which a file is hashed whole
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(i * 7919 >> 3);
  const std::string digest = bare_file(write_tokens(scratch / "a.bin", tokens)).digest();
  EXPECT_EQ(bare_file(write_tokens(scratch / "b.bin", tokens)).digest(), digest);
  std::rotate(tokens.begin(), tokens.begin() + 1, tokens.end());
  EXPECT_NE(bare_file(write_tokens(scratch / "b.bin", tokens)).digest(), digest);
  const std::string small = bare_file(write_tokens(scratch / "c.bin", {1, 2, 3, 4})).digest();
  EXPECT_NE(bare_file(write_tokens(scratch / "c.bin", {1, 2, 3, 5})).digest(), small);
  EXPECT_NE(bare_file(write_tokens(scratch / "c.bin", {1, 2, 3})).digest(), small);
}

class LimitedData : public testing::Test {
 protected:
  Rows open(std::optional<int64_t> most, const std::string& lengths = "") {
    std::string keys = "file_pattern: " + (scratch_ / "part*.bin").string() + "\nseq_len: 4\ndtype: uint16\n";
    if (!lengths.empty()) keys += "lengths: " + (scratch_ / lengths).string() + "\n";
    if (most) keys += "limit_dataset_samples: " + std::to_string(*most) + "\n";
    DataFacts facts;
    facts.vocabulary = 50;
    return Rows(token_files().make(config::read_text(keys, "run.yaml"), facts));
  }
  ScratchDirectory scratch_;
};

TEST_F(LimitedData, HasTheFirstRowsOfItsFiles) {
  write_tokens(scratch_ / "part0.bin", {1, 2, 3, 4, 5, 6, 7, 8, 9});
  write_tokens(scratch_ / "part1.bin", {1, 2, 3, 4, 5, 99, 99, 99, 99});
  EXPECT_EQ(open({}).size(), 4);
  EXPECT_EQ(open(3).size(), 3);
  EXPECT_EQ(open(1).size(), 1);
  EXPECT_EQ(open(7).size(), 4);
  const auto refusal = [&](std::optional<int64_t> most) {
    const Rows data = open(most);
    return tests::thrown_by([&] { check_tokens(std::vector<const Rows*>{&data}, 50, ""); });
  };
  EXPECT_THAT(refusal({}), HasSubstr("part1.bin: token 5 is 99;"));
  EXPECT_EQ(refusal(3), "");  // the bad tokens belong to a discarded sample
  const Rows data = open(3);
  std::vector<int64_t> tokens(4), labels(4);
  std::vector<int32_t> documents;
  data.read(2, 100, {tokens, labels, documents});
  EXPECT_THAT(tokens, testing::ElementsAre(1, 2, 3, 4));
}

TEST_F(LimitedData, HasTheFirstSamplesOfUnequalLengths) {
  write_tokens(scratch_ / "part0.bin", {1, 2, 3, 4, 5});
  write_tokens(scratch_ / "part1.bin", {6, 7, 8, 9});
  std::ofstream(scratch_ / "part0.lengths") << "2\n3\n";
  std::ofstream(scratch_ / "part1.lengths") << "2\n2\n";
  EXPECT_EQ(open({}, "part*.lengths").size(), 4);
  EXPECT_EQ(open(3, "part*.lengths").size(), 3);
  EXPECT_EQ(open(1, "part*.lengths").size(), 1);
}

TEST(TokenNoteFile, IsReadForItsTokensAloneAndNeverTakenFromSomebody) {
  const ScratchDirectory scratch;
  const auto file = scratch / "t.bin";
  const TokenNote note{"words", "d1", "c1", 300, 2, "sum"};
  write_note(file, note);
  EXPECT_EQ(read_note(file, "sum"), note);
  EXPECT_EQ(read_note(file, "other"), std::nullopt);
  remove_note(file);
  EXPECT_FALSE(std::filesystem::exists(note_beside(file)));
  std::ofstream(note_beside(file)) << R"({"mine": true})";
  EXPECT_EQ(read_note(file, "sum"), std::nullopt);
  remove_note(file);
  EXPECT_TRUE(std::filesystem::exists(note_beside(file)));
}

// Token files in a directory, some with a note.
class NotedFiles : public ::testing::Test {
 protected:
  NotedFiles() {
    noted("a.bin", {"words", "01", "c1", 300, 2, ""});
    noted("b.bin", {"words2", "02", "c1", 300, 2, ""});  // same content as a.bin
    noted("c.bin", {"others", "03", "c3", 300, 2, ""});
    write_tokens(scratch_ / "plain.bin", {1, 2, 3, 4, 5, 6});
    write_token_file<uint16_t>(scratch_ / "bytes.bin", {20240520, 1, 6, 0, kBytesMark}, {1, 2, 3, 4, 5, 6});
  }
  void noted(const char* name, TokenNote note) const {
    note.tokens = bare_file(write_tokens(scratch_ / name, {1, 2, 3, 4, 5, 6})).digest();
    write_note(scratch_ / name, note);
  }
  std::unique_ptr<IDataset> open(const std::vector<std::string>& names) const {
    std::string list;
    for (const std::string& name : names) list += "    - " + (scratch_ / name).string() + "\n";
    const Node keys =
        config::read_text("dataset:\n  dtype: uint16\n  seq_len: 4\n  file_pattern:\n" + list, "run.yaml");
    return token_files().make(*keys.find("dataset"), DataFacts());
  }

  ScratchDirectory scratch_;
};

TEST_F(NotedFiles, HaveOneTokenizerPerSet) {
  const auto refusal = [&](const std::vector<std::string>& names) {
    return tests::thrown_by([&] { (void)open(names); });
  };
  EXPECT_EQ(refusal({"a.bin", "b.bin", "plain.bin"}), "");
  EXPECT_EQ(refusal({"bytes.bin", "plain.bin"}), "");
  EXPECT_EQ(refusal({"plain.bin", "a.bin", "c.bin"}),
            "error[config] run.yaml:4 dataset.file_pattern: the files have different tokenizers: " +
                (scratch_ / "a.bin").string() +
                " contains tokens of the tokenizer words (checksum 01), but " +
                (scratch_ / "c.bin").string() + " contains tokens of the tokenizer others (checksum 03)\n" +
                "  hint: make all files with one tokenizer: heddle data --tokenizer");
  EXPECT_THAT(refusal({"a.bin", "bytes.bin"}),
              HasSubstr((scratch_ / "a.bin").string() +
                        " contains tokens of the tokenizer words (checksum 01), but " +
                        (scratch_ / "bytes.bin").string() + " contains bytes of text"));
}

TEST_F(NotedFiles, HaveTheTrainingTokenizerForAValidationSet) {
  DatasetSection section;
  section.where = "run.yaml:9 validation_dataset";
  const auto refusal = [&](const char* training, const char* validation) {
    return tests::thrown_by([&] { check_one_tokenizer(*open({training}), *open({validation}), section); });
  };
  for (const char* name : {"a.bin", "b.bin", "bytes.bin", "plain.bin"}) {
    EXPECT_EQ(refusal(name, name), "");
    EXPECT_EQ(refusal(name, "plain.bin"), "");
    EXPECT_EQ(refusal("plain.bin", name), "");
  }
  EXPECT_EQ(refusal("a.bin", "b.bin"), "");
  EXPECT_EQ(
      refusal("a.bin", "c.bin"),
      "error[config] run.yaml:9 validation_dataset: the validation set contains tokens of the tokenizer "
      "others "
      "(checksum 03), but the training set contains tokens of the tokenizer words (checksum 01)\n  hint: "
      "Tokenize both with the same tokenizer: heddle data TEXT --tokenizer DIR --out FILE.");
  EXPECT_THAT(refusal("bytes.bin", "a.bin"), HasSubstr("tokens of the tokenizer words (checksum 01), but the "
                                                       "training set contains bytes of text"));
  EXPECT_THAT(refusal("a.bin", "bytes.bin"),
              HasSubstr("the validation set contains bytes of text, but the training set"));
}

TEST(ByteModel, RefusesTokensOfATokenizer) {
  const ScratchDirectory scratch;
  DatasetSection section;
  section.where = "run.yaml:4 dataset";
  PreparedModel model;
  model.directory = "bytes-model";
  model.place.notes = scratch / "";
  const DataTokenizer words{"words", "01", 300, 2};
  const auto refusal = [&](const DataTokenizer& data) {
    return tests::thrown_by([&] { check_byte_model(data, section, model); });
  };
  EXPECT_EQ(refusal(words), "");
  std::ofstream(scratch / kTokenizerNote) << R"({"type": "bytes"})";
  EXPECT_EQ(
      refusal(words),
      "error[config] run.yaml:4 dataset: the data set contains tokens of the tokenizer words (checksum 01), "
      "and "
      "the model at bytes-model was trained on bytes of text\n  hint: Make a token file of bytes with heddle "
      "data TEXT --out FILE, or start from a model with this tokenizer.");
  DataTokenizer bytes;
  bytes.holds_bytes = true;
  EXPECT_EQ(refusal(bytes), "");
  EXPECT_EQ(refusal(DataTokenizer()), "");
}

TEST(SameTokenizer, IsAskedByBytesAndThenByContent) {
  const ScratchDirectory scratch;
  const auto file = write_tokens(scratch / "t.bin", {1, 2, 3, 4, 5, 6});
  const std::string own = R"({"model": {"vocab": {"a": 0}}, "padding": null})";
  write_note(file, {"words", "0123", tokenizer_content(own), 300, 2, bare_file(file).digest()});
  const auto refusal = [&](const std::string& json) {
    const Node keys = config::read_text(
        "dataset:\n  dtype: uint16\n  file_pattern: " + file.string() + "\n  seq_len: 4\n", "run.yaml");
    DataFacts facts;
    facts.model_tokenizer = json;
    return tests::thrown_by([&] { (void)token_files().make(*keys.find("dataset"), facts); });
  };
  EXPECT_EQ(refusal(""), "");
  EXPECT_EQ(refusal(own), "");
  EXPECT_EQ(refusal(R"({ "padding": {"length": 8}, "model": {"vocab": {"a": 0}} })"), "");
  const std::string said = refusal(R"({"model": {"vocab": {"b": 0}}})");
  EXPECT_THAT(said,
              HasSubstr("error[config] run.yaml:3 dataset.file_pattern: " + file.string() +
                        " was made with another tokenizer than the model's: that of words (vocabulary "
                        "of 300, end token 2, checksum 0123), but the model's tokenizer.json has checksum "));
  EXPECT_THAT(said,
              HasSubstr("hint: make the tokens again with heddle data --tokenizer of this model, or remove " +
                        file.string() + ".tokens.json if the tokens are nevertheless the model's"));
}

}  // namespace
}  // namespace heddle

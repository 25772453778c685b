// Files of text data sets, and the column that holds the text.
#include <gmock/gmock.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "lib/data/texts/text_files.h"
#include "lib/data/texts/text_job.h"
#include "lib/run/recipe/datasets.h"
#include "tests/main/reference_table.h"
#include "tests/thrown.h"
#include "token_files.h"
#include "trainer/cli/plugins/plugin_tables.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TextFilesTest : public ::testing::Test {
 protected:
  void add(const std::string& name, const std::string& text = "{}") {
    std::filesystem::create_directories((directory_ / name).parent_path());
    std::ofstream(directory_ / name) << text;
  }

  // Returns the files of each split as "train: a b; test: c", relative to the directory.
  std::string found(const std::string& split, const std::string& config = "", const std::string& name = "") {
    const Node place = Node::text((directory_ / name).string(), {"run.yaml", 3, 1}, "dataset.path");
    std::string out;
    for (const auto& [of, files] : find_texts({place, split, config, ""}).of_split) {
      out += (out.empty() ? "" : "; ") + of + ":";
      for (const auto& file : files) out += " " + file.lexically_relative(directory_ / "").string();
    }
    return out;
  }
  std::string refusal(const std::string& split, const std::string& config = "") {
    return tests::thrown_by([&] { found(split, config); });
  }

  ScratchDirectory directory_;
};

TEST_F(TextFilesTest, AreOfTheSplitThatTheirNamesSay) {
  add("plain_text/train-00000-of-00002.parquet");
  add("plain_text/train-00001-of-00002.parquet");
  add("plain_text/validation-00000-of-00001.parquet");
  add("README.md", "# no front matter\n");
  EXPECT_EQ(found("train"),
            "train: plain_text/train-00000-of-00002.parquet plain_text/train-00001-of-00002.parquet");
  EXPECT_EQ(found("train[:10%]+validation"),
            "train: plain_text/train-00000-of-00002.parquet plain_text/train-00001-of-00002.parquet; "
            "validation: plain_text/validation-00000-of-00001.parquet");
  EXPECT_THAT(refusal("validaton"),
              HasSubstr("run.yaml:3 dataset.path: the data set has no split 'validaton'; available: train, "
                        "validation\n  hint: did you mean 'validation'?"));
}

TEST_F(TextFilesTest, AreOfTrainingWhereNoNameSaysASplit) {
  add("b.jsonl");
  add("a.jsonl");
  add("dataset_info.json");
  EXPECT_EQ(found("train"), "train: a.jsonl b.jsonl");
}

TEST_F(TextFilesTest, AreThoseOfTheReadme) {
  add("README.md",
      "---\nlicense: mit\nconfigs:\n- config_name: one\n  data_files:\n  - split: train\n    path: "
      "one/*.jsonl\n"
      "- config_name: two\n  data_files: two/x.jsonl\n---\n# text\n");
  add("one/p.jsonl");
  add("one/q.jsonl");
  add("two/x.jsonl");
  EXPECT_EQ(found("train", "one"), "train: one/p.jsonl one/q.jsonl");
  EXPECT_EQ(found("train", "two"), "train: two/x.jsonl");
  EXPECT_THAT(refusal("train"), HasSubstr("run.yaml:3 dataset.path: the data set has the configurations one, "
                                          "two, but none is the default\n  hint: Choose one: name: one"));
  EXPECT_THAT(
      refusal("train", "twos"),
      HasSubstr("the data set has no configuration 'twos'; its configurations: one, two\n  hint: Choose "
                "one: name: two"));
}

TEST_F(TextFilesTest, KeepTheOrderOfSplits) {
  add("test.jsonl");
  add("train.jsonl");
  add("dev.jsonl");
  EXPECT_EQ(found("all"), "test: test.jsonl; train: train.jsonl; validation: dev.jsonl");
  const Node place = Node::text((directory_ / "").string());
  EXPECT_THAT(find_texts({place, "all", "", ""}).splits, ElementsAre("train", "validation", "test"));
  EXPECT_THAT(refusal("all[:2]"),
              HasSubstr("the data set has no split 'all'; available: train, validation, test"));
}

TEST_F(TextFilesTest, NamedThemselvesAreEverySplit) {
  add("mine.jsonl");
  EXPECT_EQ(found("train[3:5]", "", "mine.jsonl"), ": mine.jsonl");
  EXPECT_THAT(refusal("train"), "");
}

TEST_F(TextFilesTest, NameMissingFiles) {
  const Node list =
      Node::list({Node::text((directory_ / "no.jsonl").string(), {"run.yaml", 4, 5}, "dataset.path.0")});
  EXPECT_THAT(
      tests::thrown_by([&] {
        find_texts({list, "", "", ""});
      }),
      HasSubstr("run.yaml:4 dataset.path.0: '" + (directory_ / "no.jsonl").string() + "' does not exist"));
  EXPECT_THAT(tests::thrown_by([&] {
                find_texts({Node::text("no-one/nothing"), "train", "", ""});
              }),
              HasSubstr("`hf download no-one/nothing --repo-type dataset`"));
}

TEST(SplitsIn, AreTheNamesWithoutTheirSlices) {
  EXPECT_THAT(splits_in("train[:100]+validation[:10%] + train[5:]"), ElementsAre("train", "validation"));
  EXPECT_THAT(splits_in(""), ElementsAre());
}

TEST(TextKeys, EqualTheTableOfTheReference) {
  OfferedSchema schema;
  schema.fields = text_key_fields();
  tests::expect_reference_table("data.md", "texts", cli::to_markdown({{"dataset", &schema}}));
}

class TextJobTest : public TextFilesTest {
 protected:
  TextJobTest() {
    add("mine.jsonl", "{\"a\": 1}\n");
    add("mine.py", "def plan(arguments, tools): pass\n");
    add("words/tokenizer.json", "{}");
    job_.name = "mine";
    job_.script = directory_ / "mine.py";
    job_.tokenizer.directory = directory_ / "words";
    job_.arguments = Node::map({{"split", Node::text("train")}});
    job_.files.of_split["train"] = {directory_ / "mine.jsonl"};
    job_.date = "2026-01-01";
  }
  std::string key() const { return key_of(job_, {}); }

  TextJob job_;
};

TEST_F(TextJobTest, HasAKeyOfItsContentAlone) {
  const std::string before = key();
  std::filesystem::rename(directory_ / "mine.jsonl", directory_ / "moved.jsonl");
  job_.files.of_split["train"] = {directory_ / "moved.jsonl"};
  job_.date = "2026-01-02";
  EXPECT_EQ(key(), before);
  add("moved.jsonl", "{\"a\": 2}\n");
  EXPECT_NE(key(), before);
}

TEST_F(TextJobTest, HasAnotherKeyForWhateverChangesItsTokens) {
  const std::string before = key();
  const auto expect_another = [&](const char* what) { EXPECT_NE(key(), before) << what; };
  job_.arguments = job_.arguments.with("split", Node::text("test"));
  expect_another("an argument");
  job_.arguments = job_.arguments.with("split", Node::text("train"));
  EXPECT_EQ(key(), before);
  add("words/tokenizer.json", "{\"x\": 1}");
  expect_another("the tokenizer");
  add("words/tokenizer.json", "{}");
  for (const char* more : {"added_tokens.json", "additional_chat_templates/tool_use.jinja"}) {
    add(std::string("words/") + more, "x");
    expect_another(more);
    std::filesystem::remove(directory_ / (std::string("words/") + more));
  }
  add("mine.py", "def plan(arguments, tools): return 1\n");
  expect_another("the script");
}

TEST_F(TextJobTest, HasTheOrderOfTheSplitsInItsKeyWhereAllAreAskedFor) {
  job_.files.splits = {"train", "test"};
  const std::string of_train = key();
  job_.files.splits = {"test", "train"};
  EXPECT_EQ(key(), of_train);
  job_.arguments = job_.arguments.with("split", Node::text(kAllSplits));
  const std::string before = key();
  job_.files.splits = {"train", "test"};
  EXPECT_NE(key(), before);
}

TEST_F(TextJobTest, HasTheDateInItsKeyWhereATemplateAsksForIt) {
  add("words/chat_template.jinja", "{{ strftime_now('%Y') }}");
  const std::string before = key();
  job_.date = "2026-01-02";
  EXPECT_NE(key(), before);
}

TEST_F(TextJobTest, RemembersChecksumsBySizeAndTime) {
  const auto notes = directory_ / "notes.json";
  const std::string before = key_of(job_, notes);
  EXPECT_EQ(key_of(job_, notes), before);
  add("mine.jsonl", "{\"a\": 1}\n\n");
  EXPECT_NE(key_of(job_, notes), before);
  EXPECT_TRUE(std::filesystem::exists(notes));
}

TEST_F(TextJobTest, LeavesSomebodysFileAsItIs) {
  for (const char* text : {"mine", "{\"a\": 1}"}) {
    add("notes.json", text);
    EXPECT_EQ(key_of(job_, directory_ / "notes.json"), key());
    std::ifstream in(directory_ / "notes.json");
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), text);
  }
}

}  // namespace
}  // namespace heddle

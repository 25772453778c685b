// `heddle prepare`: directory of its files, keys of all sets of texts, and refusals.
#include <gmock/gmock.h>

#include <filesystem>

#include "flow/data/texts.h"

namespace flow {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Prepare : public Texts {
 protected:
  Outcome prepare(const std::string& dataset, const Words& more = {}) const {
    return run(plus({"prepare", files_.path("run.yaml"), "--dataset", dataset}, more));
  }
  static size_t samples_in(const fs::path& directory) {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(directory))
      count += entry.path().extension() == ".samples";
    return count;
  }
};

TEST_F(Prepare, WritesItsFilesToTheNamedDirectory) {
  EXPECT_EQ(prepare(set()).status, 0);
  const Outcome elsewhere = prepare(set(), {"--out", files_.path("shipped"), "--jobs", "1"});
  EXPECT_EQ(elsewhere.status, 0) << elsewhere.error;
  EXPECT_EQ(samples_in(files_.path("shipped")), 1u);
}

TEST_F(Prepare, WritesOneFilePerDateForADatedTemplate) {
  const std::string dated =
      ", chat_template: \"{{ strftime_now('%Y') }} {% for m in messages %}{{ m.content }} {% endfor %}\"";
  for (const char* date : {"2026-01-01", "2026-01-02", "2026-01-01"})
    EXPECT_EQ(prepare(set(dated + ", date: '" + date + "'")).status, 0);
  EXPECT_EQ(samples_in(files_.path("data")), 2u);
}

TEST_F(Prepare, TakesSlicesOfLocalFilesOnRequest) {
  const std::string columns =
      "{_target_: x.ColumnMappedTextInstructionDataset, path_or_dataset_id: " + files_.path("columns.jsonl") +
      ", tokenizer: " + files_.path("words") +
      ", column_mapping: {question: ask, answer: say}, split: 'train[:2]'";
  std::string rows;
  for (int i = 0; i < 5; ++i) rows += "{\"ask\": \"warp\", \"say\": \"weft\"}\n";
  files_.write("columns.jsonl", rows);
  const Outcome whole = prepare(columns + "}");
  EXPECT_THAT(whole.out, HasSubstr(": 5 samples, ")) << whole.error;
  EXPECT_THAT(whole.error,
              HasSubstr("split of a local JSON file: not applied, as in AutoModel; all 5 rows are read"));
  EXPECT_THAT(prepare(columns + ", apply_split: true}").out, HasSubstr(": 2 samples, "));
}

TEST_F(Prepare, ReportsTheFaultsOfTheWholeFile) {
  const Outcome outcome = prepare(set(), {"--step_scheduler.max_stepz", "3"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error, HasSubstr("max_stepz"));
  files_.write("wrong.yaml", "datset: {file_pattern: a}\n");
  const Outcome section = run({"prepare", files_.path("wrong.yaml")});
  EXPECT_EQ(section.status, 2) << section.out;
  EXPECT_THAT(section.error, HasSubstr("datset"));
}

TEST_F(Prepare, IsSkippedByARefusedRun) {
  const Outcome outcome = run(words("run", {"--distributed.tp_size", "2"}));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_FALSE(fs::exists(files_.path("data"))) << outcome.error;
}

TEST_F(Prepare, ReportsATemplateThatIsNotAFile) {
  const Outcome outcome = prepare(set(", chat_template: nothere.jinja"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error,
              HasSubstr("'nothere.jinja' is neither a file nor a template, which contains {{ or {%"));
}

// Converts the first rows without creating a file.
TEST_F(Prepare, IsTriedOnTheFirstRowsByCheck) {
  const auto check = [&](const std::string& section) {
    Words words = this->words("run", {"--dataset", section});
    words[0] = "check";
    return run(words);
  };
  const Outcome good = check(set());
  EXPECT_EQ(good.status, 0) << good.error;
  EXPECT_THAT(good.error,
              HasSubstr("run heddle prepare or heddle train; only the first 30 rows are checked\n"));
  files_.write("rows.jsonl", "{\"context\": \"warp\", \"question\": \"weft\", \"answers\": \"shed\"}\n");
  EXPECT_THAT(check(set()).error,
              HasSubstr("rows.jsonl:1: `answers` must be {text: [...]}, as in rajpurkar/squad, "));
  files_.write("rows.jsonl", "");
  EXPECT_THAT(check(set()).error, HasSubstr("has no rows\n"));
  EXPECT_FALSE(fs::exists(files_.path("data")));
  EXPECT_EQ(check("{_target_: ChatDataset, path_or_dataset_id: []}").error,
            "error[config] --dataset dataset.path_or_dataset_id: path_or_dataset_id names no file\n"
            "  hint: set it to a JSON or JSONL file, or a list of them\n");
}

}  // namespace
}  // namespace flow

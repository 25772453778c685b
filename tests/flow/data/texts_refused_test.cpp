// Data sets of texts that are refused before or while they are prepared.
#include <gmock/gmock.h>

#include <filesystem>

#include "flow/data/texts.h"

namespace flow {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST_F(Texts, ThatAreNoRegularFileAreSaidToBeNone) {
  fs::remove(files_.path("rows.jsonl"));
  fs::create_symlink("/dev/zero", files_.path("rows.jsonl"));
  EXPECT_THAT(run(words("run")).error,
              HasSubstr("'" + files_.path("rows.jsonl") + "' is a device; a regular file is expected"));
}

TEST_F(Texts, OfATokenizerOfAGigabyteAreRefusedBeforeItIsRead) {
  const std::string file = files_.path("words/tokenizer.json");
  fs::resize_file(file, 1 << 30);  // takes no space
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

TEST_F(Texts, SayWhichPackageIsMissing) {
  const Outcome outcome = run(words("run"), files_.path("no_packages"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error, HasSubstr("no_packages"));
  EXPECT_THAT(outcome.error, HasSubstr("tokenizers"));
  EXPECT_THAT(outcome.error, HasSubstr("pip install"));
}

TEST_F(Texts, AreRefusedByTheirOwnLine) {
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
  EXPECT_THAT(missing.error,
              HasSubstr("dataset.dataset_name: 'someone/missing' is not there; heddle downloads nothing: "
                        "`hf download someone/missing --repo-type dataset`"));
}

}  // namespace
}  // namespace flow

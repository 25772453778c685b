// A run on questions and answers about words of a small vocabulary.
#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <vector>

#include "flow/training_files.h"

namespace flow {

inline constexpr const char* kWordsTokenizer =
    R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
"pre_tokenizer":{"type":"WhitespaceSplit"},"post_processor":null,"decoder":null,
"model":{"type":"WordLevel","unk_token":"<unk>","vocab":{"<unk>":0,"</s>":1,"Context:":2,"Question:":3,"Answer:":4,
"warp":5,"weft":6,"shed":7,"reed":8,"loom":9,"heald":10,"beam":11,"pick":12}}})";

// Returns questions of unequal length about words of a small vocabulary.
inline std::string question_rows(int rows) {
  const char* words[] = {"warp", "weft", "shed", "reed", "loom", "heald", "beam", "pick"};
  std::string out;
  uint32_t state = 7;
  const auto some = [&](int most) {
    std::string text;
    const int count = 1 + static_cast<int>((state = state * 1664525u + 1013904223u) >> 16) % most;
    for (int i = 0; i < count; ++i)
      text += std::string(i ? " " : "") + words[(state = state * 1664525u + 1013904223u) >> 29];
    return text;
  };
  for (int i = 0; i < rows; ++i) {
    const std::string context = some(6), question = some(3), answer = some(4);
    out += R"({"context": ")" + context + R"(", "question": ")" + question + R"(", "answers": {"text": [")" +
           answer + "\"]}}\n";
  }
  return out;
}

class Texts : public ::testing::Test {
 protected:
  Texts() {
    std::filesystem::create_directory(files_.path("words"));
    files_.write("words/tokenizer.json", kWordsTokenizer);
    files_.write("words/tokenizer_config.json", R"({"eos_token": "</s>", "model_max_length": 1024})");
    files_.write("rows.jsonl", question_rows(30));
    files_.write("no_packages", "#!/bin/sh\nexec python3 -E -S \"$@\"\n");
    files_.write("slow", "#!/bin/sh\nsleep 1\nexec python3 \"$@\"\n");
    files_.write("stuck", "#!/bin/sh\nexec sleep 20\n");  // ends long after a test has killed its run
    for (const char* script : {"no_packages", "slow", "stuck"})
      std::filesystem::permissions(files_.path(script), std::filesystem::perms::owner_all);
  }

  std::string set(const std::string& more = "") const {
    return "{_target_: nemo.squad.make_squad_dataset, dataset_name: " + files_.path("rows.jsonl") +
           ", tokenizer: " + files_.path("words") + more + "}";
  }
  Words words(const std::string& run, const Words& more = {}, const std::string& set_more = "") const {
    return plus(
        files_.train(run, {"--dataset", set(set_more), "--step_scheduler.num_epochs", "2",
                           "--step_scheduler.global_batch_size", "6", "--step_scheduler.max_steps", "8"}),
        more);
  }
  static Words environment(const std::string& python = "") {
    return {"PYTHONPATH=" HEDDLE_PYTHON_PACKAGES, "HEDDLE_PYTHON=" + python};
  }
  Outcome run(const Words& words, const std::string& python = "") const {
    return heddle(plus(words, {}), plus(environment(python), {"HEDDLE_DATA=" + files_.path("data")}));
  }
  std::vector<double> trained(const std::string& name, const Words& more = {},
                              const std::string& key = "loss") const {
    const Outcome outcome = run(words(name, more));
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return column(files_.path(name + "/training.jsonl"), key);
  }
  std::filesystem::path prepared() const {
    for (const auto& entry : std::filesystem::directory_iterator(files_.path("data")))
      if (entry.path().extension() == ".samples") return entry.path();
    return {};
  }
  static void expect_near(const std::vector<double>& got, const std::vector<double>& want, double part) {
    ASSERT_EQ(got.size(), want.size());
    ASSERT_FALSE(want.empty());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], part * want[i]) << i;
  }

  TrainingFiles files_;
};

}  // namespace flow

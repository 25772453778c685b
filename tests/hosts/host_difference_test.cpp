// Differences between hosts that are refused before the first step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <ostream>
#include <string>

#include "cluster.h"
#include "flow/data/texts.h"
#include "run_folder.h"

namespace hosts {
namespace {

namespace fs = std::filesystem;

constexpr int kAllRanks = -1;

// A difference between one host or rank and the rest. "@" stands for the folder of the files.
struct Difference {
  const char* name;
  Words words = {};         // overrides of the recipe
  const char* place = "";   // path on the second host that shows `source`
  const char* source = "";  // file or directory shown at `place`
  int rank = kAllRanks;     // rank whose environment differs
  const char* variable = "";
  const char* value = "";
};

void PrintTo(const Difference& difference, std::ostream* out) {
  *out << difference.name;
}

const Words kModel = {"--model", "{pretrained_model_name_or_path: @/model, dtype: float32}"};
const Words kAdapter = {"--model", "{pretrained_model_name_or_path: @/adapter, dtype: float32}"};
const Words kTeacher = {"--recipe",        "KnowledgeDistillationRecipeForNextTokenPrediction",
                        "--teacher_model", "{pretrained_model_name_or_path: @/teacher, dtype: float32}",
                        "--kd_ratio",      "0.5"};
const Words kTexts = {
    "--dataset",
    "{_target_: nemo.squad.make_squad_dataset, dataset_name: @/rows.jsonl, tokenizer: @/tokenizer}"};
const Words kChat = {"--dataset",
                     "{_target_: ChatDataset, path_or_dataset_id: @/chat.jsonl, tokenizer: "
                     "{pretrained_model_name_or_path: @/tokenizer}, chat_template: @/template.jinja}"};
const Words kResume = {"--checkpoint.restore_from", "@/saved/epoch_0_step_0"};
const Words kPlugin = {"--plugins",   "[@/plugins]",           "--optimizer._target_",
                       "ReplicaBits", "--optimizer.directory", "@/bits"};

const Words kQuantized = flow::plus(kModel, {"--peft", "{target_modules: '*_proj', dim: 4, alpha: 8}",
                                             "--quantization", "{load_in_4bit: true}"});

const Difference kDifferences[] = {
    {.name = "Weights", .words = kModel, .place = "model", .source = "other_model"},
    {.name = "WeightsUnderDdp",
     .words = flow::plus(kModel, {"--distributed", "{strategy: ddp}"}),
     .place = "model",
     .source = "other_model"},
    {.name = "MissingModel", .words = kModel, .place = "model", .source = "empty"},
    {.name = "Teacher", .words = kTeacher, .place = "teacher", .source = "other_model"},
    {.name = "Adapter", .words = kAdapter, .place = "adapter", .source = "other_adapter"},
    {.name = "BaseOfTheAdapter", .words = kAdapter, .place = "model", .source = "other_model"},
    {.name = "QuantizedWeights", .words = kQuantized, .place = "model", .source = "other_model"},
    {.name = "Tokenizer", .words = kTexts, .place = "tokenizer", .source = "other_tokenizer"},
    {.name = "ChatTemplate", .words = kChat, .place = "template.jinja", .source = "other_template.jinja"},
    {.name = "PreparedSamples", .words = kTexts, .place = "data", .source = "other_data"},
    {.name = "Checkpoint", .words = kResume, .place = "saved", .source = "other_saved"},
    {.name = "MissingCheckpoint", .words = kResume, .place = "saved", .source = "empty"},
    {.name = "CheckpointDirectory", .place = "run", .source = "empty"},
    {.name = "MissingPlugin", .words = kPlugin, .place = "plugins", .source = "empty"},
    {.name = "RankTwice", .rank = 3, .variable = "RANK", .value = "0"},
    {.name = "RankOutOfRange", .rank = 3, .variable = "RANK", .value = "7"},
    {.name = "WorldSize",
     .words = {"--step_scheduler.local_batch_size", "1"},
     .rank = 3,
     .variable = "WORLD_SIZE",
     .value = "8"},
    {.name = "LoopbackAddress", .variable = "MASTER_ADDR", .value = "localhost"},
};

// Files that the hosts share, and alternative versions of some of them.
class SharedFiles {
 public:
  SharedFiles() {
    fs::create_directory(folder_.path("empty"));
    fs::create_directory(folder_.path("bits"));
    fs::create_directory(folder_.path("plugins"));
    fs::copy(HEDDLE_BINARY_DIR "/tests/hosts/libheddle_replica_bits.so", folder_.path("plugins"));
    make_models();
    make_texts();
    // Checkpoints with equal data and different weights.
    train("saved", {});
    train("other_saved", {"--optimizer.lr", "0.002"});
  }

  std::string recipe() const { return folder_.recipe(); }
  std::string path(const std::string& name) const { return folder_.path(name); }
  // Returns the words with "@" replaced by the folder.
  Words in_folder(Words words) const {
    for (std::string& word : words)
      for (size_t at; (at = word.find("@/")) != std::string::npos;) word.replace(at, 2, folder_.path(""));
    return words;
  }

 private:
  // Trains one step on one rank and saves it in the directory `run`.
  void train(const std::string& run, const Words& words, const std::string& data = "data") const {
    const Words all = flow::plus({"train", recipe()}, folder_.save_in(run, in_folder(words)));
    const flow::Outcome outcome = flow::heddle(
        flow::plus(all, {"--step_scheduler.max_steps", "1", "--distributed", "{strategy: single}"}),
        {"PYTHONPATH=" HEDDLE_PYTHON_PACKAGES, "HEDDLE_DATA=" + folder_.path(data)});
    EXPECT_EQ(outcome.status, 0) << run << "\n" << outcome.out << outcome.error;
  }

  void copy(const std::string& from, const std::string& to) const {
    fs::copy(folder_.path(from), folder_.path(to), fs::copy_options::recursive);
  }

  // Swaps the halves of one tensor whose name contains `part`.
  void change_tensor(const std::string& directory, const std::string& part) const {
    auto tensors = read_tensors(folder_.path(directory));
    const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const auto& tensor) {
      return tensor.first.find(part) != std::string::npos;
    });
    ASSERT_NE(found, tensors.end()) << directory;
    auto& values = found->second;
    std::rotate(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
    write_tensors(folder_.path(directory), tensors);
  }

  void make_models() const {
    train("made", {});
    fs::copy(folder_.exported("made"), folder_.path("model"), fs::copy_options::recursive);
    copy("model", "teacher");
    copy("model", "other_model");
    change_tensor("other_model", "layers.1.mlp.down_proj");
    train("made_adapter", flow::plus(kModel, {"--peft", "{target_modules: '*_proj', dim: 4, alpha: 8}"}));
    copy("made_adapter/LATEST/model", "adapter");
    copy("adapter", "other_adapter");
    change_tensor("other_adapter", "lora_B");
  }

  void make_texts() const {
    const std::string tokenizer = flow::kWordsTokenizer, rows = flow::question_rows(40);
    folder_.write("tokenizer/tokenizer.json", tokenizer);
    folder_.write("tokenizer/tokenizer_config.json", R"({"eos_token": "</s>", "model_max_length": 1024})");
    copy("tokenizer", "other_tokenizer");
    folder_.write("other_tokenizer/tokenizer.json",
                  swapped(tokenizer, "\"warp\":5", "\"weft\":6", "\"weft\":5", "\"warp\":6"));
    std::string chat;
    for (int row = 0; row < 40; ++row)
      chat +=
          R"({"messages": [{"role": "user", "content": "warp weft shed"}, {"role": "assistant", "content": "reed loom"}]})"
          "\n";
    folder_.write("chat.jsonl", chat);
    const std::string messages = "{% for message in messages %}{{ message['content'] }} ";
    folder_.write("template.jinja", messages + "</s> {% endfor %}");
    folder_.write("other_template.jinja", messages + "pick </s> {% endfor %}");
    // Prepared samples of other texts under the same file name.
    folder_.write(
        "rows.jsonl",
        flow::question_rows(39) +
            "{\"context\": \"pick\", \"question\": \"pick\", \"answers\": {\"text\": [\"pick\"]}}\n");
    train("made_other_texts", kTexts, "other_data");
    folder_.write("rows.jsonl", rows);
    train("made_texts", kTexts);
    fs::rename(prepared("other_data"), folder_.path("other_data") / prepared("data").filename());
    train("made_chat", kChat);
  }

  static std::string swapped(std::string text, const std::string& first, const std::string& second,
                             const std::string& new_first, const std::string& new_second) {
    text.replace(text.find(first), first.size(), new_first);
    return text.replace(text.find(second), second.size(), new_second);
  }

  fs::path prepared(const std::string& directory) const {
    for (const auto& entry : fs::directory_iterator(folder_.path(directory)))
      if (entry.path().extension() == ".samples") return entry.path();
    return {};
  }

  const RunFolder folder_;
};

class HostDifference : public ::testing::TestWithParam<Difference> {
 protected:
  static const SharedFiles& files() {
    static const SharedFiles shared;
    return shared;
  }

  void SetUp() override { renew_checkpoint_directory(); }

  static void renew_checkpoint_directory() {
    fs::remove_all(files().path("run"));
    fs::create_directory(files().path("run"));
  }

  static void train(TwoHosts& hosts, const Words& words) {
    hosts.set_everywhere("PYTHONPATH", HEDDLE_PYTHON_PACKAGES);
    hosts.set_everywhere("HEDDLE_DATA", files().path("data"));
    hosts.train(files().recipe(),
                flow::plus({"--checkpoint.checkpoint_dir", files().path("run")}, files().in_folder(words)));
  }
};

bool names_a_host(const TwoHosts& hosts, const std::string& text) {
  return text.find(hosts.name(0)) != std::string::npos || text.find(hosts.name(1)) != std::string::npos;
}

TEST_P(HostDifference, IsRefusedOnEveryRankBeforeTheFirstStep) {
  const Difference& difference = GetParam();
  TwoHosts hosts;
  if (*difference.place) hosts.bind(1, files().path(difference.source), files().path(difference.place));
  if (*difference.variable && difference.rank == kAllRanks)
    hosts.set_everywhere(difference.variable, difference.value);
  if (*difference.variable && difference.rank != kAllRanks)
    hosts.environment(difference.rank)[difference.variable] = difference.value;
  train(hosts, difference.words);
  const bool ended = hosts.wait(15);
  EXPECT_TRUE(ended) << "some rank still runs after 15 s\n" << hosts.report();
  EXPECT_EQ(hosts.steps(), 0);
  if (!ended) return;
  EXPECT_TRUE(hosts.all_have_status(2)) << hosts.report();
  for (int rank = 0; rank < hosts.ranks(); ++rank)
    EXPECT_TRUE(names_a_host(hosts, hosts.errors(rank))) << "rank " << rank << "\n" << hosts.errors(rank);
}

// Checks that the files and recipes of the cases above train if no host differs.
TEST_F(HostDifference, IsTheOnlyReasonOfTheRefusals) {
  TwoHosts hosts;
  for (const Words& words : {kModel, kAdapter, kTeacher, kQuantized, kTexts, kChat, kResume, kPlugin}) {
    renew_checkpoint_directory();
    train(hosts, words);
    ASSERT_TRUE(hosts.wait(30)) << hosts.report();
    EXPECT_TRUE(hosts.all_have_status(0)) << hosts.report();
  }
}

INSTANTIATE_TEST_SUITE_P(TwoHosts, HostDifference, ::testing::ValuesIn(kDifferences),
                         [](const auto& difference) { return difference.param.name; });

}  // namespace
}  // namespace hosts

// A searched pipeline schedule is broadcast by rank 0, and all ranks compare it before training starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "heddle/engine/engine.h"
#include "heddle/mesh/dry.h"

namespace heddle {
namespace {

using ::testing::Contains;
using ::testing::Not;

constexpr const char* kTable = "the schedule's table";

// Records the rendezvous values that a rank publishes. Optionally changes the table that the rank receives.
struct RecordedRank : DryRank {
  explicit RecordedRank(bool changes) : DryRank(0, 2), changes(changes) {}
  std::string hold_rendezvous(const std::string& key, const std::string& text,
                              const Answer& answer) override {
    keys.push_back(key);
    said.push_back(text);
    std::string answered = DryRank::hold_rendezvous(key, text, answer);
    // Swaps microbatches 0 and 1 in the table.
    for (size_t at = 0; key == kTable && changes && at < answered.size(); ++at)
      if (at + 1 == answered.size() || std::string(",\n;)").find(answered[at + 1]) != std::string::npos)
        answered[at] = answered[at] == '0' ? '1' : answered[at] == '1' ? '0' : answered[at];
    return answered;
  }
  const bool changes;
  std::vector<std::string> keys, said;
};

std::string said_at(const RecordedRank& rendezvous, const std::string& key) {
  const auto found = std::find(rendezvous.keys.begin(), rendezvous.keys.end(), key);
  return found == rendezvous.keys.end() ? "" : rendezvous.said[found - rendezvous.keys.begin()];
}

void build(RecordedRank& rendezvous, const std::string& schedule, int64_t batch_rows) {
  static PluginRegistry plugins({HEDDLE_BINARY_DIR "/plugins"});
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "heddle_agreed_table";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 32, "hidden_size": 8,
    "intermediate_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 2,
    "max_position_embeddings": 16, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "hidden_act": "silu",
    "tie_word_embeddings": false, "torch_dtype": "float32"
  })";
  const auto llama = engine::read_model(folder / "config.json", plugins);
  const Node configuration = config::read_text(
      "dist_env: {backend: gloo}\ndistributed: {strategy: single, pp_size: 2, pipeline: {pp_schedule: " +
          schedule + "}}\n",
      "run.yaml");
  const auto make_units = [&](const Setup&) {
    return llama->make_units(at::TensorOptions(at::kFloat).device(at::kMeta));
  };
  engine::model(configuration, plugins, {rendezvous, make_units, {}, 42, "", batch_rows});
}

TEST(TableOfASearch, IsInTheFingerprint) {
  RecordedRank rendezvous(false), other(true);
  build(rendezvous, "auto", 4);
  build(other, "auto", 4);
  EXPECT_THAT(rendezvous.keys, Contains(kTable));
  ASSERT_NE(said_at(rendezvous, "fingerprint"), "");
  EXPECT_NE(said_at(rendezvous, "fingerprint"), said_at(other, "fingerprint"));
}

TEST(TableOfASearch, IsFoundAtTheFirstStepWhereTheRowsAreNotKnown) {
  RecordedRank rendezvous(false), named(false);
  build(rendezvous, "auto", 0);
  EXPECT_THAT(rendezvous.keys, Not(Contains(kTable)));
  build(named, "1f1b", 4);  // not a searched schedule
  EXPECT_THAT(named.keys, Not(Contains(kTable)));
}

}  // namespace
}  // namespace heddle

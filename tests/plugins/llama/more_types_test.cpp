// GPT-OSS, GLM-4.5, MiniMax-M2 and Ling: configurations and sliding windows. Files of every family round-trip
// byte for byte.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "checkpoint/folder.h"
#include "heddle/transport/threads.h"
#include "lib/run/convert/convert.h"
#include "tests/core/engine/setups.h"
#include "tests/llama_model.h"

namespace heddle {
namespace {

using tests::Folder;

ModelConfig typed_config(const std::string& json) {
  const Folder folder;
  folder.write("config.json", json);
  return read_model_config(folder / "config.json");
}

// The published file, without quantization_config.
const char* const kGptOss20b = R"({"architectures":["GptOssForCausalLM"],"attention_bias":true,
    "attention_dropout":0.0,"experts_per_token":4,"head_dim":64,"hidden_act":"silu","hidden_size":2880,
    "initial_context_length":4096,"intermediate_size":2880,"max_position_embeddings":131072,
    "model_type":"gpt_oss","num_attention_heads":64,"num_experts_per_tok":4,"num_hidden_layers":24,
    "num_key_value_heads":8,"num_local_experts":32,"output_router_logits":false,"pad_token_id":199999,
    "rms_norm_eps":1e-05,"rope_scaling":{"beta_fast":32.0,"beta_slow":1.0,"factor":32.0,
    "original_max_position_embeddings":4096,"rope_type":"yarn","truncate":false},"rope_theta":150000,
    "router_aux_loss_coef":0.9,"sliding_window":128,"swiglu_limit":7.0,"vocab_size":201088})";

TEST(MoreTypes, HaveTransformersDefaults) {
  const ModelConfig published = typed_config(kGptOss20b);
  EXPECT_EQ(published.mixture.experts, 32);
  ModelConfig ours = typed_config(R"({"model_type":"gpt_oss","num_hidden_layers":24,"num_local_experts":32,
      "pad_token_id":199999,"router_aux_loss_coef":0.9})");
  EXPECT_EQ(ours, published);
  EXPECT_EQ(ours.rope_scaling.kind, RotaryScaling::Kind::yarn);
  EXPECT_EQ(ours.window_of(0), 128);
  EXPECT_EQ(ours.window_of(1), 0);
  EXPECT_TRUE(ours.sinks && ours.qkv_bias && ours.output_bias && ours.mixture.expert_bias);
  const ModelConfig glm = typed_config(R"({"model_type":"glm4_moe","head_dim":128})");
  EXPECT_EQ(glm.rotary_dim(), 64);
  EXPECT_FALSE(glm.mixture.sparse(0));
  EXPECT_TRUE(glm.mixture.sparse(1) && glm.mixture.router_in_fp32 && glm.mixture.correction);
  EXPECT_EQ(glm.mixture.shared_width, 1408);
  const ModelConfig minimax = typed_config(R"({"model_type":"minimax_m2","rotary_dim":64})");
  EXPECT_EQ(minimax.rotary_dim(), 64);
  EXPECT_EQ(minimax.rope_theta, 5e6);
  EXPECT_TRUE(minimax.qk_norm_of_whole && minimax.mixture.normalise);
  const ModelConfig ling = typed_config(R"({"model_type":"bailing_moe"})");
  EXPECT_EQ(ling.rotary_dim(), 64);
  EXPECT_EQ(ling.mixture.groups, 8);
  EXPECT_EQ(ling.pad_token_id, 156892);
}

TEST(MoreTypes, RoundTrip) {
  for (
      const char* json :
      {kGptOss20b,
       R"({"model_type":"gpt_oss","sliding_window":null,"swiglu_alpha":1.5,"attention_bias":false})",
       R"({"model_type":"gpt_oss","num_hidden_layers":2,"layer_types":["full_attention","sliding_attention"]})",
       R"({"model_type":"glm4_moe","head_dim":128,"n_group":4,"topk_group":2,"n_shared_experts":3,
            "gate_bias_update_factor":0.001,"use_qk_norm":true,"partial_rotary_factor":0.25})",
       R"({"model_type":"minimax_m2","rotary_dim":32,"router_aux_loss_type":"layer"})",
       R"({"model_type":"bailing_moe","routed_scaling_factor":2.5,"use_qkv_bias":true,"pad_token_id":null})",
       R"({"model_type":"mixtral","sliding_window":16})",
       R"({"model_type":"qwen3","use_sliding_window":true,"sliding_window":7,"max_window_layers":3})",
       R"({"model_type":"qwen2_moe","use_sliding_window":true,"max_window_layers":5})",
       R"({"model_type":"qwen3_moe","use_sliding_window":true})"})
    EXPECT_EQ(typed_config(json), typed_config(to_config_json(typed_config(json)))) << json;
}

TEST(MoreTypes, HaveTheWindowsOfTransformers) {
  const auto windows = [](const std::string& keys) {
    const ModelConfig config = typed_config("{" + keys + R"(,"num_hidden_layers":4})");
    std::vector<int64_t> out;
    for (int64_t layer = 0; layer < 4; ++layer) out.push_back(config.window_of(layer));
    return out;
  };
  using Windows = std::vector<int64_t>;
  const std::string on =
      R"("use_sliding_window":true,"sliding_window":9,"max_window_layers":2,"model_type":)";
  EXPECT_EQ(windows(on + "\"qwen2\""), (Windows{0, 0, 9, 9}));
  EXPECT_EQ(windows(on + "\"qwen3\""), (Windows{0, 0, 9, 9}));
  EXPECT_EQ(windows(on + "\"qwen2_moe\""), (Windows{9, 0, 0, 0}));
  EXPECT_EQ(windows(on + "\"qwen3_moe\""), (Windows{9, 9, 9, 9}));
  EXPECT_EQ(windows(R"("model_type":"mixtral","sliding_window":9)"), (Windows{9, 9, 9, 9}));
  EXPECT_EQ(windows(R"("model_type":"mixtral","sliding_window":null)"), (Windows{0, 0, 0, 0}));
  EXPECT_EQ(windows(R"("model_type":"qwen2","use_sliding_window":true,"max_window_layers":3)"),
            (Windows{0, 0, 0, 4096}));
  EXPECT_EQ(windows(R"("model_type":"qwen2","sliding_window":9)"), (Windows{0, 0, 0, 0}));
  EXPECT_EQ(windows(R"("model_type":"qwen2_moe","sliding_window":0)"), (Windows{0, 0, 0, 0}));
}

void convert_on(int ranks, const std::filesystem::path& from, const std::filesystem::path& to) {
  Conversion conversion;
  conversion.from = find_model(from);
  conversion.to = to;
  conversion.model = read_saved_model(conversion.from, tests::built_plugins());
  ThreadWorld::run(ranks, [&](Rendezvous& rendezvous) { convert(conversion, rendezvous); });
}

std::string bytes_in(const std::filesystem::path& file) {
  return std::string(std::istreambuf_iterator<char>(std::ifstream(file, std::ios::binary).rdbuf()), {});
}

// Through a sharded model of one to three ranks. Headers, indices and config.json also equal those that
// transformers wrote.
TEST(Files, RoundTripByteForByteForEveryFamily) {
  int models = 0;
  for (const auto& golden : std::filesystem::directory_iterator(HEDDLE_SOURCE_DIR "/tests/golden")) {
    if (!std::filesystem::exists(golden.path() / "config.json")) continue;
    SCOPED_TRACE(golden.path());
    const Folder folder;
    const int ranks = ++models % 3 + 1;
    convert_on(ranks, golden.path(), folder / "sharded");
    convert_on(ranks, folder / "sharded", folder / "back");
    for (const auto& entry : std::filesystem::directory_iterator(golden.path())) {
      const std::string name = entry.path().filename();
      if (name != "config.json" && !name.starts_with("model")) continue;
      EXPECT_TRUE(bytes_in(entry.path()) == bytes_in(folder / "back" / name)) << name;
    }
  }
  EXPECT_GT(models, 50);
}

}  // namespace
}  // namespace heddle

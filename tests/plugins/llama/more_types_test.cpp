// GPT-OSS, GLM-4.5, MiniMax-M2 and Ling: configurations and sliding windows. Files of every family round-trip
// byte for byte.
#include <gmock/gmock.h>

#include <fstream>
#include <iterator>

#include "heddle/transport/threads.h"
#include "lib/run/convert/convert.h"
#include "plugins/llama/exported.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using tests::expect_round_trip;
using tests::exported;
using tests::Folder;
using tests::layers_with;

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
  const auto published = exported(kGptOss20b);
  EXPECT_EQ(published["num_local_experts"], 32);
  const std::string keys = R"({"model_type":"gpt_oss","num_hidden_layers":24,"num_local_experts":32,
      "pad_token_id":199999,"router_aux_loss_coef":0.9})";
  const auto ours = exported(keys);
  EXPECT_EQ(ours, published);
  EXPECT_EQ(ours["rope_scaling"]["rope_type"], "yarn");
  EXPECT_EQ(ours["sliding_window"], 128);
  EXPECT_EQ(ours["layer_types"][0], "sliding_attention");
  EXPECT_EQ(ours["layer_types"][1], "full_attention");
  for (const char* module : {"self_attn.sinks", "q_proj.bias", "o_proj.bias", "experts.down_proj_bias"})
    EXPECT_EQ(layers_with(keys, module).size(), 24u) << module;
  const std::string small = R"(,"num_hidden_layers":3})";
  const std::string glm = R"({"model_type":"glm4_moe","head_dim":128)" + small;
  EXPECT_EQ(exported(glm)["partial_rotary_factor"], 0.5);
  EXPECT_EQ(exported(glm)["router_dtype"], "float32");
  EXPECT_EQ(exported(glm)["n_shared_experts"], 1);
  EXPECT_THAT(layers_with(glm, "e_score_correction_bias"), ElementsAre(1, 2));
  const auto minimax = exported(R"({"model_type":"minimax_m2","rotary_dim":64})");
  EXPECT_EQ(minimax["rotary_dim"], 64);
  EXPECT_EQ(minimax["rope_theta"], 5e6);
  const auto ling = exported(R"({"model_type":"bailing_moe"})");
  EXPECT_EQ(ling["partial_rotary_factor"], 0.5);
  EXPECT_EQ(ling["n_group"], 8);
  EXPECT_EQ(ling["pad_token_id"], 156892);
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
    expect_round_trip(json);
}

TEST(MoreTypes, HaveTheWindowsOfTransformers) {
  // The windows of four layers, as the signature records them.
  const auto windows = [](const std::string& keys) {
    const auto signature = tests::read_json("{" + keys + R"(,"num_hidden_layers":4})")->signature();
    const auto found = signature.find("sliding_window");
    return found == signature.end() ? std::string("none") : found->second;
  };
  const std::string on =
      R"("use_sliding_window":true,"sliding_window":9,"max_window_layers":2,"model_type":)";
  EXPECT_EQ(windows(on + "\"qwen2\""), "9 in layers 2,3");
  EXPECT_EQ(windows(on + "\"qwen3\""), "9 in layers 2,3");
  EXPECT_EQ(windows(on + "\"qwen2_moe\""), "9 in layers 0");
  EXPECT_EQ(windows(on + "\"qwen3_moe\""), "9 in layers 0,1,2,3");
  EXPECT_EQ(windows(R"("model_type":"mixtral","sliding_window":9)"), "9 in layers 0,1,2,3");
  EXPECT_EQ(windows(R"("model_type":"mixtral","sliding_window":null)"), "none");
  EXPECT_EQ(windows(R"("model_type":"qwen2","use_sliding_window":true,"max_window_layers":3)"),
            "4096 in layers 3");
  EXPECT_EQ(windows(R"("model_type":"qwen2","sliding_window":9)"), "none");
  EXPECT_EQ(windows(R"("model_type":"qwen2_moe","sliding_window":0)"), "none");
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

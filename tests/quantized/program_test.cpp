// Commands on a base model in fp8 or mxfp4: train, check, convert, generate, export.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <memory>
#include <sstream>
#include <string>

#include "data/token_files.h"
#include "flow/program.h"
#include "heddle/engine/engine.h"
#include "lib/run/model/prepared_model.h"
#include "quantized/cases.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::Folder;
using tests::golden;

class QuantizedProgram : public ::testing::Test {
 protected:
  // checkpoint: additional keys of the section `checkpoint`.
  fs::path recipe(const fs::path& model, const std::string& run, const std::string& checkpoint = "",
                  const std::string& distributed = "{strategy: single}") {
    std::vector<uint16_t> tokens;
    for (int i = 0; i < 9 * 11; ++i) tokens.push_back(static_cast<uint16_t>(i * i % 59));
    write_token_file(folder_ / "train.bin", {20240520, 1, static_cast<int32_t>(tokens.size())}, tokens);
    return folder_.write(
        run + ".yaml",
        "step_scheduler: {global_batch_size: 2, local_batch_size: 1, max_steps: 2}\nmodel:\n  "
        "pretrained_model_name_or_path: " +
            model.string() + "\ndataset: {file_pattern: " + (folder_ / "train.bin").string() +
            ", seq_len: 10}\noptimizer: {lr: 0.001}\ndistributed: " + distributed +
            "\ncheckpoint: {checkpoint_dir: " + (folder_ / run).string() + checkpoint + "}\n");
  }
  std::string losses(const std::string& run) const {
    std::ifstream in(folder_ / (run + "/training.jsonl"));
    std::string out;
    for (std::string line; std::getline(in, line);)
      if (const auto step = nlohmann::json::parse(line); step.contains("loss"))
        out += step["loss"].dump() + " ";
    return out;
  }

  Folder folder_;
};

TEST_F(QuantizedProgram, TrainsAsThePlainCopyAndExportsAPlainModel) {
  for (const char* name : {"llama_odd_fp8", "gpt_oss_mxfp4"}) {
    const std::string run = std::string("run_") + name, other = std::string("plain_run_") + name;
    const fs::path plain = tests::plain_model(folder_, name);
    const flow::Outcome trained =
        flow::heddle({"train", recipe(golden(name), run, ", dequantize_base_checkpoint: true").string()});
    ASSERT_EQ(trained.status, 0) << trained.error;
    const bool fp8 = std::string(name) == "llama_odd_fp8";
    EXPECT_THAT(trained.out + trained.error,
                HasSubstr(std::string(", dequantized from ") + (fp8 ? "fp8" : "mxfp4")));
    EXPECT_THAT(trained.out + trained.error, Not(HasSubstr("warning: " + golden(name).string())));
    ASSERT_EQ(flow::heddle({"train", recipe(plain, other).string()}).status, 0);
    EXPECT_EQ(losses(run), losses(other));
    EXPECT_NE(losses(run), "");
    const fs::path exported = folder_ / (run + "/epoch_0_step_1/model/consolidated");
    const auto config = nlohmann::json::parse(std::ifstream(exported / "config.json"));
    EXPECT_FALSE(config.contains("quantization_config"));
    EXPECT_EQ(config["dtype"], "bfloat16");
    const HfWeights weights(exported);
    EXPECT_EQ(weights.names(), HfWeights(plain).names());
    for (const std::string& tensor : weights.names())
      EXPECT_TRUE(weights.at(tensor).dtype == at::kBFloat16 || tensor.ends_with("bias")) << tensor;
  }
}

TEST_F(QuantizedProgram, RefusesAModelThatMayNotBeDequantized) {
  const std::string file =
      recipe(golden("llama_odd_fp8"), "run", ", dequantize_base_checkpoint: false").string();
  const flow::Outcome checked = flow::heddle({"check", file});
  EXPECT_EQ(checked.status, 2);
  EXPECT_THAT(checked.error, HasSubstr("checkpoint.dequantize_base_checkpoint: the weights in " +
                                       golden("llama_odd_fp8").string() +
                                       " are in fp8, and training with quantized weights is not built"));
  const fs::path plain = tests::plain_model(folder_, "llama_odd_fp8");
  EXPECT_EQ(
      flow::heddle({"check", recipe(plain, "run", ", dequantize_base_checkpoint: false").string()}).status,
      0);
}

TEST_F(QuantizedProgram, ChecksTheHeaders) {
  tests::Tensors tensors = tests::read_tensors(golden("llama_odd_fp8") / "model.safetensors");
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  tensors.erase(name + "_scale_inv");
  tests::write_model(folder_ / "broken", tests::config_of("llama_odd_fp8"), tensors);
  const flow::Outcome checked = flow::heddle({"check", recipe(folder_ / "broken", "run").string()});
  EXPECT_EQ(checked.status, 2);
  EXPECT_THAT(checked.error,
              HasSubstr((folder_ / "broken/model.safetensors").string() + ": holds quantized weights \"" +
                        name + "\" without their scales: tensor \"" + name + "_scale_inv\" is missing"));
}

// Compares every parameter of two models in bfloat16.
void expect_equal_models(const fs::path& one, const fs::path& other) {
  PluginRegistry plugins({HEDDLE_BINARY_DIR "/plugins"});
  const PreparedModel got = open_pretrained(one, plugins), want = open_pretrained(other, plugins);
  for (const auto& unit : want.make())
    for (const ParameterSlot& slot : unit->parameters()) {
      Shard shard = whole_shard(slot, {});
      shard.tensor = at::empty(shard.shape, at::kBFloat16);
      ASSERT_TRUE(want.source(shard));
      const at::Tensor values = shard.tensor.clone();
      shard.tensor.zero_();
      ASSERT_TRUE(got.source(shard));
      EXPECT_TRUE(at::equal(shard.tensor, values)) << slot.name;
    }
}

TEST_F(QuantizedProgram, ConvertsToAPlainModel) {
  for (const char* name : {"llama_odd_fp8", "deepseek_v3_fp8", "gpt_oss_mxfp4"}) {
    const std::string sharded = (folder_ / (std::string("sharded_") + name)).string(),
                      back = sharded + "_back";
    const flow::Outcome made =
        flow::heddle({"convert", golden(name).string(), sharded, "--nproc-per-node", "2"});
    ASSERT_EQ(made.status, 0) << made.error;
    ASSERT_EQ(flow::heddle({"convert", sharded, back}).status, 0);
    const fs::path plain = tests::plain_model(folder_, name);
    expect_equal_models(sharded, plain);
    expect_equal_models(back, plain);
    EXPECT_FALSE(
        nlohmann::json::parse(std::ifstream(fs::path(back) / "config.json")).contains("quantization_config"));
  }
}

TEST_F(QuantizedProgram, GeneratesAsThePlainCopy) {
  const fs::path plain = tests::plain_model(folder_, "gpt_oss_mxfp4");
  const auto generate = [](const fs::path& model) {
    return flow::heddle(
        {"generate", model.string(), "--tokens", "3,5,7", "--max-new-tokens", "4", "--temperature", "0"});
  };
  const flow::Outcome got = generate(golden("gpt_oss_mxfp4")), want = generate(plain);
  EXPECT_EQ(got.status, 0) << got.error;
  EXPECT_EQ(got.out, want.out);
}

}  // namespace
}  // namespace heddle

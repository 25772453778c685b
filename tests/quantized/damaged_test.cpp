// Damaged quantized files. Errors name the file and the tensor, and are found from headers
// alone.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <memory>
#include <string>

#include "heddle/engine/engine.h"
#include "lib/run/model/prepared_model.h"
#include "quantized/cases.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;
using tests::Folder;
using tests::golden;
using tests::Tensors;

class DamagedQuantized : public ::testing::Test {
 protected:
  // Returns the error of opening the model and checking its headers.
  std::string refusal() {
    tests::write_model(folder_ / "model", config_, tensors_);
    return tests::error_of(folder_, [&] {
      const PreparedModel model = open_pretrained(folder_ / "model", plugins_);
      check_weights(model, model.make());
    });
  }
  void use(const std::string& name) {
    config_ = tests::config_of(name);
    tensors_ = tests::read_tensors(golden(name) / "model.safetensors");
  }

  Folder folder_;
  PluginRegistry plugins_{{HEDDLE_BINARY_DIR "/plugins"}};
  nlohmann::ordered_json config_;
  Tensors tensors_;
};

const std::string kQ = "model.layers.1.self_attn.q_proj.weight";
const std::string kHint = "\n  hint: download the model again, or use a copy in bfloat16";
const std::string kFile = "error[input] FOLDER/model/model.safetensors: ";

TEST_F(DamagedQuantized, Fp8) {
  use("llama_odd_fp8");
  EXPECT_EQ(refusal(), "no error");
  const Tensors whole = tensors_;
  tensors_.erase(kQ + "_scale_inv");
  EXPECT_EQ(refusal(), kFile + "holds quantized weights \"" + kQ + "\" without their scales: tensor \"" + kQ +
                           "_scale_inv\" is missing" + kHint);
  tensors_[kQ + "_scale"] = at::ones({});
  EXPECT_EQ(refusal(),
            kFile + "tensor \"" + kQ +
                "_scale\": one scale for a whole tensor (compressed-tensors, ModelOpt) is not built" + kHint);
  tensors_ = whole;
  tensors_[kQ + "_scale_inv"] = at::ones({5, 3});
  EXPECT_EQ(refusal(), kFile + "tensor \"" + kQ +
                           "_scale_inv\" has the shape [5, 3], blocks of [16, 24] of [72, 42] need [5, 2]" +
                           kHint);
  tensors_[kQ + "_scale_inv"] = at::ones({5, 2}, at::kDouble);
  EXPECT_EQ(refusal(), kFile + "tensor \"" + kQ +
                           "_scale_inv\" has the dtype F64, scales have F32, BF16 or F8_E8M0" + kHint);
  tensors_ = whole;
  tensors_[kQ] = tensors_[kQ].to(at::kFloat).to(at::kFloat8_e5m2);
  EXPECT_EQ(refusal(), kFile + "tensor \"" + kQ +
                           "\" has the dtype F8_E5M2; quantized weights are read in F8_E4M3" + kHint);
  tensors_[kQ] = tensors_[kQ].to(at::kBFloat16);
  EXPECT_EQ(refusal(), kFile + "tensor \"" + kQ + "\" has the dtype BF16 and scales ('" + kQ +
                           "_scale_inv'), which only F8_E4M3 and packed fp4 (I8) have" + kHint);
}

TEST_F(DamagedQuantized, Fp8WithoutItsConfiguration) {
  use("llama_odd_fp8");
  config_.erase("quantization_config");
  EXPECT_THAT(refusal(),
              HasSubstr("has the dtype F8_E4M3, and config.json has no quantization_config that says "
                        "how it is scaled"));
}

TEST_F(DamagedQuantized, Fp8ConfigurationsOfAnotherForm) {
  use("llama_odd_fp8");
  const std::string where = "error[input] FOLDER/model/config.json quantization_config.";
  config_["quantization_config"]["weight_block_size"] = nullptr;
  EXPECT_EQ(refusal(),
            where +
                "weight_block_size: weights in fp8 with one scale for a whole tensor "
                "(weight_block_size null) are not built\n  hint: use a copy of the model in bfloat16");
  config_["quantization_config"]["weight_block_size"] = {128, 0};
  EXPECT_THAT(refusal(), HasSubstr("expected two sizes of a block, such as [128, 128], got [128, 0]"));
  config_["quantization_config"] = {{"quant_method", "fp8"}, {"fmt", "e5m2"}};
  EXPECT_THAT(refusal(), HasSubstr("weights in the format 'e5m2' are not built; known: e4m3"));
  config_["quantization_config"] = {{"quant_method", "fp8"}};  // default block size: 128 x 128
  EXPECT_THAT(refusal(), HasSubstr("blocks of [128, 128] of "));
  for (const char* method : {"compressed-tensors", "modelopt", "bitsandbytes"}) {
    config_["quantization_config"] = {{"quant_method", method}};
    EXPECT_THAT(refusal(), HasSubstr("quantization_config: quantized weights (" + std::string(method) +
                                     ") are not built"));
  }
}

TEST_F(DamagedQuantized, Fp8WithExpertsInFp4) {
  use("deepseek_v4_fp8");
  EXPECT_EQ(refusal(), "no error");
  const Tensors whole = tensors_;
  const std::string expert = "layers.1.ffn.experts.2.w1", layer = "layers.1.attn.wq_b";
  tensors_.erase(expert + ".scale");
  EXPECT_EQ(refusal(), kFile + "holds quantized weights \"" + expert +
                           ".weight\" without their scales: tensor \"" + expert +
                           ".weight_scale_inv\" is missing" + kHint);
  tensors_[expert + ".scale"] = at::ones({32, 1});
  EXPECT_EQ(refusal(),
            kFile + "tensor \"" + expert + ".scale\" has the dtype F32, scales of fp4 have F8_E8M0" + kHint);
  const at::Tensor more = at::zeros({32, 2}, at::kByte).view(at::kFloat8_e8m0fnu);
  tensors_[expert + ".scale"] = more;
  EXPECT_EQ(refusal(), kFile + "tensor \"" + expert + ".scale\" has the shape [32, 2], \"" + expert +
                           ".weight\" needs [32, 1]" + kHint);
  tensors_[expert + ".weight"] = at::zeros({32, 8}, at::kChar);
  EXPECT_EQ(refusal(),
            kFile + "tensor \"" + expert +
                ".weight\" has the shape [32, 8], packed fp4 has [out, in / 2] of whole groups of 32" +
                kHint);
  tensors_ = whole;
  tensors_[layer + ".scale"] = more;
  EXPECT_EQ(refusal(), kFile + "tensor \"" + layer +
                           ".scale\" has the shape [32, 2], blocks of [8, 8] of [64, 24] need [8, 3]" +
                           kHint);
  tensors_[layer + ".weight"] = at::zeros({64, 24}, at::kBFloat16);
  EXPECT_EQ(refusal(), kFile + "tensor \"" + layer + ".weight\" has the dtype BF16 and scales ('" + layer +
                           ".scale'), which only F8_E4M3 and packed fp4 (I8) have" + kHint);
}

TEST_F(DamagedQuantized, ExpertsOfAnotherForm) {
  use("deepseek_v4_fp8");
  config_["expert_dtype"] = "nvfp4";
  EXPECT_EQ(
      refusal(),
      "error[input] FOLDER/model/config.json expert_dtype: experts in 'nvfp4' are not built; known: fp4, "
      "fp8\n  hint: use a copy of the model in bfloat16");
}

TEST_F(DamagedQuantized, Mxfp4) {
  use("gpt_oss_mxfp4");
  EXPECT_EQ(refusal(), "no error");
  const Tensors whole = tensors_;
  const std::string down = "model.layers.0.mlp.experts.down_proj";
  tensors_.erase(down + "_scales");
  EXPECT_EQ(refusal(), kFile + "holds quantized weights \"" + down + "\" without their scales: tensor \"" +
                           down + "_scales\" is missing" + kHint);
  tensors_ = whole;
  tensors_.erase(down + "_blocks");
  EXPECT_EQ(refusal(), kFile + "holds quantized weights \"" + down + "\" without their values: tensor \"" +
                           down + "_blocks\" is missing" + kHint);
  tensors_ = whole;
  tensors_[down + "_scales"] = at::zeros({4, 64, 2}, at::kByte);
  EXPECT_EQ(refusal(), kFile + "tensor \"" + down + "_scales\" has the shape [4, 64, 2], \"" + down +
                           "_blocks\" needs [4, 64, 1]" + kHint);
  tensors_[down + "_scales"] = at::zeros({4, 64, 1});
  EXPECT_EQ(refusal(), kFile + "tensor \"" + down + "_scales\" has the dtype F32, mxfp4 has U8" + kHint);
  tensors_ = whole;
  tensors_[down + "_blocks"] = at::zeros({4, 64, 16}, at::kByte);
  EXPECT_EQ(refusal(), kFile + "tensor \"" + down +
                           "_blocks\" has the shape [4, 64, 16], mxfp4 has [experts, out, in / 32, 16]" +
                           kHint);
  tensors_[down + "_blocks"] = at::zeros({4, 64, 2, 16}, at::kByte);
  tensors_[down + "_scales"] = at::zeros({4, 64, 2}, at::kByte);
  EXPECT_THAT(refusal(),
              HasSubstr("tensor \"" + down + "\" has the shape [4, 64, 64], the model needs [4, 32, 64]"));
}

}  // namespace
}  // namespace heddle

// Adapters of experts: equal on every topology, and files of PEFT are read as W + s B A.
#include <ATen/TensorOperators.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/empty_like.h>
#include <gmock/gmock.h>

#include "heddle/parallel/shard.h"
#include "lib/run/model/prepared_model.h"
#include "plugins/whole_runs.h"

namespace heddle::tests {
namespace {

const std::string kLayer = "model.layers.1.mlp.experts.";

class LoraOfExperts : public ::testing::Test {
 protected:
  LoraOfExperts() {
    runs.model =
        "{model_type: qwen3_moe, vocab_size: 53, hidden_size: 14, intermediate_size: 23, num_hidden_layers: "
        "2, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 6, max_position_embeddings: 16, "
        "num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 9, router_aux_loss_coef: 0}";
    runs.train({"base", 1, "{strategy: single}"}, "base", 1);
    runs.pretrained = "base/epoch_0_step_0";
  }
  std::string section = "peft: {target_modules: ['*'], dim: 5, alpha: 7, moe_rank_scaling: true}\n";
  WholeRuns runs;
};

TEST_F(LoraOfExperts, AreEqualOnEveryTopology) {
  expect_alike_on(runs, section,
                  {{2, kFsdp2InFp32 + ", ep_size: 2}"},
                   {2, "{strategy: single, activation_checkpointing: full, " + two_stages("zb1p") + "}"}});
  EXPECT_EQ(tensors_of(runs / "alone/LATEST/model").at(kLayer + "lora_gate_and_up_B").sizes(),
            (std::vector<int64_t>{4, 18, 2}));
}

TEST_F(LoraOfExperts, AreReadFromTheirFilesIntoAnyBox) {
  runs.train({"run", 2, kFsdp2InFp32 + ", ep_size: 2}", section}, "run", 4);
  const auto base = tensors_of(runs / "base/epoch_0_step_0/model");
  auto of = tensors_of(runs / "run/epoch_0_step_3/model");
  PluginRegistry plugins({HEDDLE_BINARY_DIR "/plugins"});
  const PreparedModel model = open_pretrained(runs / "run/epoch_0_step_3", plugins);
  int products = 0;
  for (const auto& [name, tensor] : base) {
    const bool down = name == kLayer + "down_proj";
    if (!down && name != kLayer + "gate_up_proj") continue;
    ++products;
    const std::string which = kLayer + (down ? "lora_down_" : "lora_gate_and_up_");
    const at::Tensor more = at::einsum("eor,eri->eoi", {of.at(which + "B"), of.at(which + "A")}) * (7.0 / 2);
    EXPECT_GT(more.abs().max().item<double>(), 1e-4);
    const at::Tensor sum = tensor + more.view(tensor.sizes());
    std::vector<int64_t> offset(tensor.dim(), 0), size = tensor.sizes().vec();
    offset[0] = 1, offset[tensor.dim() - 2] = 2, offset.back() = 3;
    for (size_t dim = 0; dim < size.size(); ++dim) size[dim] -= offset[dim];
    at::Tensor want = sum;
    for (size_t dim = 0; dim < size.size(); ++dim) want = want.narrow(dim, offset[dim], size[dim]);
    Shard shard;
    shard.name = name, shard.shape = tensor.sizes().vec(), shard.offset = offset;
    shard.tensor = at::empty(size, tensor.options());
    ASSERT_TRUE(model.source(shard));
    EXPECT_TRUE(shard.tensor.allclose(want, 1e-5, 1e-6)) << name;
  }
  EXPECT_EQ(products, 2);
}

TEST_F(LoraOfExperts, AreRefusedIfExpertsAreSplitAmongRanks) {
  EXPECT_THAT(runs.refusal({"run", 2, kFsdp2InFp32 + ", ep_size: 1, etp_size: 2}", section}),
              ::testing::HasSubstr("adapters of experts that are split among ranks are not built yet"));
}

}  // namespace
}  // namespace heddle::tests

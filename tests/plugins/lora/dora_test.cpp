// DoRA: steps and files equal peft's (tests/golden/make_dora.py), and runs are equal on every topology.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>

#include "heddle/base/error.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/linear.h"
#include "lib/run/model/prepared_model.h"
#include "plugins/lora/peft_golden.h"
#include "plugins/lora/peft_units.h"
#include "plugins/whole_runs.h"
#include "tests/core/engine/setups.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("DoraRuns.*");

const PeftGolden kDoraGolden = {"llama_odd", "dora"};

TEST(Dora, EqualsPeftForFiveSteps) {
  kDoraGolden.expect_steps("{target_modules: '*_proj', dim: 3, alpha: 6, use_dora: true}");
}

class OneScaled : public Module {
 public:
  OneScaled() : layer(6, 5, Linear::Bias::zeros, {}, at::kCPU) { add_child("a_proj", layer); }
  std::string_view kind() const override { return "one"; }
  Linear layer;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override { return layer.call(std::move(x), batch); }
};

using Leaves = std::map<std::string, at::Tensor>;

// Full dropout (p = 1) of the input leaves the layer unchanged. Full dropout of the output leaves the scaled
// product of the layer.
at::Tensor dora_by_hand(const at::Tensor& x, Leaves& of, const std::string& dropped) {
  const at::Tensor low = at::linear(x, of["a_proj.lora_A.weight"]) * 3.5,
                   own = at::linear(x, of["a_proj.weight"]);
  const at::Tensor sum =
      of["a_proj.weight"] + of["a_proj.lora_B.weight"].matmul(of["a_proj.lora_A.weight"]) * 3.5;
  const at::Tensor factor =
      of["a_proj.lora_magnitude_vector.weight"] / at::linalg_vector_norm(sum.detach(), 2, at::IntArrayRef{1});
  if (dropped == "pre") return own + of["a_proj.bias"];
  const at::Tensor both = dropped == "post" ? own : own + at::linear(low, of["a_proj.lora_B.weight"]);
  return both * factor + of["a_proj.bias"];
}

TEST(Dora, EqualsTheFormulaWithDetachedLengthsAndDropout) {
  for (const std::string dropped : {"", "pre", "post"}) {
    SCOPED_TRACE(dropped);
    Units units;
    units.push_back(std::make_unique<ModuleUnit>("one", "", std::make_unique<OneScaled>()));
    const std::string dropout = dropped.empty() ? "" : ", dropout: 1, dropout_position: " + dropped;
    (void)adapt(units, "{dim: 2, alpha: 7, use_dora: true" + dropout + "}");
    Leaves mine;
    for (const ParameterSlot& slot : units[0]->parameters()) {
      slot.tensor->detach().normal_();
      mine[slot.name] = slot.tensor->detach().clone().set_requires_grad(slot.trainable());
    }
    const at::Tensor x = at::randn({3, 6}).set_requires_grad(true),
                     y = x.detach().clone().set_requires_grad(true), g = at::randn({3, 5});
    Batch batch;
    if (!dropped.empty()) batch.draws = at::arange(3, at::kLong);
    const at::Tensor got = units[0]->module()->call(x, batch), want = dora_by_hand(y, mine, dropped);
    EXPECT_TRUE(got.allclose(want, 1e-5, 1e-5));
    (got * g).sum().backward();
    (want * g).sum().backward();
    EXPECT_TRUE(x.grad().allclose(y.grad(), 1e-4, 1e-5));
    for (const ParameterSlot& slot : units[0]->parameters()) {
      const at::Tensor of_mine = mine[slot.name].grad(), of_slot = slot.tensor->grad();
      if (of_mine.defined()) {
        EXPECT_TRUE(of_slot.allclose(of_mine, 1e-4, 1e-5)) << slot.name;
      } else {
        EXPECT_TRUE(!of_slot.defined() || of_slot.abs().max().item<double>() < 1e-5) << slot.name;
      }
    }
  }
}

// Reads what peft saved. Boxes of some columns use the lengths of whole rows.
TEST(Dora, MergesPeftsAdaptersLikePeft) {
  const ParameterSource source = kDoraGolden.merged();
  const SafetensorsFile merged = kDoraGolden.file("merged.safetensors");
  for (const auto& [name, stored] : merged.tensors()) {
    const at::Tensor want = read_tensor(merged, name);
    EXPECT_TRUE(box_of(source, name, stored.shape).allclose(want, 1e-5, 1e-6)) << name;
    EXPECT_TRUE(box_of(source, name, stored.shape, {5, 7}, {11, 9})
                    .allclose(want.narrow(0, 5, 11).narrow(1, 7, 9), 1e-5, 1e-6))
        << name;
  }
}

Topology dora(const std::string& distributed = "{strategy: single}", int ranks = 1,
              const std::string& fields = "dim: 3, match_all_linear: true") {
  return {"run", ranks, distributed, "peft: {use_dora: true, " + fields + "}\n"};
}

class DoraRuns : public ::testing::Test {
 protected:
  DoraRuns() {
    runs.train({"base", 1, "{strategy: single}"}, "base", 2);
    runs.pretrained = "base/epoch_0_step_1";
  }
  WholeRuns runs;
};

TEST_F(DoraRuns, AreEqualOnEveryTopology) {
  for (const std::string fields :
       {"dim: 3, match_all_linear: true", "dim: 2, dropout: 0.3, dropout_position: pre",
        "dim: 2, dropout: 0.3, dropout_position: post"})
    expect_alike_on(runs, "peft: {use_dora: true, " + fields + "}\n",
                    {{2, "{strategy: ddp}"},
                     {2, kFsdp2InFp32 + "}"},
                     {2, "{strategy: megatron_fsdp}"},
                     {2, kFsdp2InFp32 + ", activation_checkpointing: full, " + two_stages("zb1p") + "}"}});
}

TEST_F(DoraRuns, StartWithTheBaseAndItsRowLengths) {
  const Told full = runs.train({"full", 1, "{strategy: single}"}, "full", 1);
  const Told begun = runs.train(dora(), "run", 1);
  EXPECT_NEAR(begun.losses[0], full.losses[0], 2e-6 * full.losses[0]);
  const auto base = tensors_of(runs / "base/epoch_0_step_1/model"),
             saved = tensors_of(runs / "run/epoch_0_step_0/model");
  const std::string layer = "model.layers.1.mlp.up_proj";
  const at::Tensor want = at::linalg_vector_norm(base.at(layer + ".weight"), 2, at::IntArrayRef{1});
  // One step of the warmup changed it slightly.
  EXPECT_TRUE(saved.at(layer + ".lora_magnitude_vector.weight").allclose(want, 0, 0.02));
  EXPECT_TRUE(std::filesystem::exists(runs / "run/epoch_0_step_0/model/adapter_model.safetensors"));
}

TEST_F(DoraRuns, SaveAdaptersThatPeftReadsAndHeddleMerges) {
  const Topology shards = dora(kFsdp2InFp32 + "}", 2, "dim: 2, alpha: 6");
  runs.train(shards, "run", 4);
  const auto directory = runs / "run/epoch_0_step_3/model";
  const SafetensorsFile file(directory / "adapter_model.safetensors");
  const std::string layer = "model.layers.2.mlp.down_proj";
  EXPECT_EQ(file.tensors().at("base_model.model." + layer + ".lora_magnitude_vector").shape.size(), 1U);
  const auto saved = tensors_of(directory), base = tensors_of(runs / "base/epoch_0_step_1/model");
  const at::Tensor sum = base.at(layer + ".weight") +
                         saved.at(layer + ".lora_B.weight").matmul(saved.at(layer + ".lora_A.weight")) * 3;
  const at::Tensor want = sum * (saved.at(layer + ".lora_magnitude_vector.weight") /
                                 at::linalg_vector_norm(sum, 2, at::IntArrayRef{1}))
                                    .unsqueeze(1);
  const PreparedModel model = open_pretrained(runs / "run", built_plugins());
  EXPECT_TRUE(box_of(model.source, layer + ".weight", want.sizes().vec()).allclose(want, 1e-5, 1e-6));
}

TEST_F(DoraRuns, ResumeBitForBit) {
  expect_resumes(runs, dora(kFsdp2InFp32 + "}", 2));
}

// Adapters in another dtype than their layers: the adapters, their gradients and files have this dtype.
TEST_F(DoraRuns, AdaptersHaveTheDtypeOfTheField) {
  const auto of = [](const std::string& dtype, const std::string& distributed, int ranks) {
    return Topology{"run", ranks, distributed, "peft: {dim: 3, lora_dtype: " + dtype + "}\n"};
  };
  const Told wide = runs.train(of("float32", "{strategy: single}", 1), "wide", 5),
             narrow = runs.train(of("bfloat16", "{strategy: single}", 1), "narrow", 5);
  EXPECT_NE(narrow.losses, wide.losses);
  for (size_t i = 0; i < wide.losses.size(); ++i)
    EXPECT_NEAR(narrow.losses[i], wide.losses[i], 2e-2 * wide.losses[i]);
  for (const auto& [name, tensor] : tensors_of(runs / "narrow/epoch_1_step_4/model"))
    EXPECT_EQ(tensor.scalar_type(), at::kBFloat16) << name;
  for (const std::string& distributed :
       std::vector<std::string>{"{strategy: ddp}", "{strategy: single, tp_size: 2}"}) {
    SCOPED_TRACE(distributed);
    std::filesystem::remove_all(runs / "other");
    const Told other = runs.train(of("bfloat16", distributed, 2), "other", 1);
    EXPECT_NEAR(other.losses[0], narrow.losses[0], 2e-5 * narrow.losses[0]);
    EXPECT_NEAR(other.norms[0], narrow.norms[0], 2e-2 * narrow.norms[0]);
  }
}

}  // namespace
}  // namespace heddle::tests

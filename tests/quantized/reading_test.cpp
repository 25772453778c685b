// Models in fp8 and mxfp4 equal their dequantized copies bit for bit, whole and in the shards of any
// rank.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "heddle/checkpoint/hf_source.h"
#include "heddle/checkpoint/manifest.h"
#include "heddle/engine/engine.h"
#include "heddle/train/step.h"
#include "heddle/transport/threads.h"
#include "lib/checkpoint/quantized/base_weights.h"
#include "quantized/cases.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using tests::Folder;
using tests::golden;

const char* const kFloat32 =
    "mp_policy: {param_dtype: float32, reduce_dtype: float32, output_dtype: float32, "
    "cast_forward_inputs: true}";

// A model loaded on this rank, as the engine builds it.
struct Built {
  Built(const fs::path& directory, const std::string& section, at::ScalarType dtype, Rendezvous& rendezvous)
      : plugins({fs::path(HEDDLE_BINARY_DIR) / "plugins"}),
        spec(engine::read_model(directory / "config.json", plugins)),
        model(engine::model(
            config::read_text("distributed: " + section + "\ndist_env: {backend: gloo}\n", "run.yaml"),
            plugins, host(directory, dtype, rendezvous))) {}

  engine::ModelHost host(const fs::path& directory, at::ScalarType dtype, Rendezvous& rendezvous) const {
    return {
        rendezvous,
        [this, dtype](const Setup&) { return spec->make_units(at::TensorOptions(at::kMeta).dtype(dtype)); },
        checkpoint::hf_source(directory, std::make_shared<HfWeights>(directory), spec), 42, ""};
  }

  PluginRegistry plugins;
  std::shared_ptr<const ModelSpec> spec;
  engine::Model model;
};

// Returns the losses of two steps on the same rows.
std::vector<double> losses(engine::Model& model) {
  StepConfig config;
  Step step(model.stages, model.mesh, config);
  Batch batch;
  batch.tokens = at::arange(22, at::kLong).mul(7).remainder(59).view({2, 11});
  batch.labels = at::arange(22, at::kLong).mul(5).remainder(61).view({2, 11});
  std::vector<double> out;
  for (int i = 0; i < 2; ++i) out.push_back(step.run(std::span(&batch, 1), 1e-3, 0.1).loss.item<double>());
  return out;
}

struct QuantizedCase {
  std::string name, topology;
  int ranks;
  std::string section;
};

class Quantized : public ::testing::TestWithParam<QuantizedCase> {};

// Compares every shard of every rank, then the losses.
TEST_P(Quantized, EqualsItsPlainCopy) {
  const QuantizedCase& given = GetParam();
  const Folder folder;
  const fs::path plain = tests::plain_model(folder, given.name);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto rank = [&](Rendezvous& rendezvous) {
      Built one(golden(given.name), given.section, dtype, rendezvous);
      Built other(plain, given.section, dtype, rendezvous);
      size_t compared = 0;
      for (int stage = 0; stage < static_cast<int>(one.model.stages.size()); ++stage) {
        const auto& got = one.model.stages[stage]->owned();
        const auto& want = other.model.stages[stage]->owned();
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < got.size(); ++i, ++compared) {
          ASSERT_EQ(got[i].name, want[i].name);
          EXPECT_TRUE(at::equal(got[i].tensor, want[i].tensor)) << got[i].name;
        }
      }
      EXPECT_GT(compared, 20U);
      const std::vector<double> loss = losses(one.model);
      EXPECT_EQ(loss, losses(other.model));
      EXPECT_GT(loss[0], 3.0);
      EXPECT_NE(loss[0], loss[1]);
    };
    ThreadWorld::run(given.ranks, rank);
  }
}

std::vector<QuantizedCase> cases() {
  const std::string fsdp2 = std::string("{strategy: fsdp2, ") + kFloat32;
  std::vector<QuantizedCase> out;
  for (const char* name : {"llama_fp8", "llama_odd_fp8", "deepseek_v3_fp8", "deepseek_v4_fp8",
                           "gpt_oss_mxfp4", "kimi_k3_mxfp4"}) {
    out.push_back({name, "single", 1, "{strategy: single}"});
    out.push_back({name, "fsdp2", 2, fsdp2 + "}"});
    const std::string model = name;
    if (model != "llama_odd_fp8" && model != "deepseek_v4_fp8")  // these models have one key-value head
      out.push_back({name, "tp2", 2, fsdp2 + ", tp_size: 2}"});
    if (model == "deepseek_v3_fp8") out.push_back({name, "ep3", 3, fsdp2 + ", ep_size: 3}"});
    if (model.ends_with("mxfp4") || model == "deepseek_v4_fp8")
      out.push_back({name, "ep2", 2, fsdp2 + ", ep_size: 2}"});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Golden, Quantized, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name + "_" + info.param.topology; });

// Keys and tensor names are those of the published files. transformers computed the expected loss.
TEST(Quantized, DeepSeekV4AsPublishedHasTheLossOfTransformers) {
  double loss = 0;
  ThreadWorld::run(1, [&](Rendezvous& rendezvous) {
    Built one(golden("deepseek_v4_fp8"), "{strategy: single}", at::kFloat, rendezvous);
    loss = losses(one.model)[0];
  });
  EXPECT_NEAR(loss, 5.499767, 1e-5);
}

using Extents = std::vector<int64_t>;

// Visits boxes whose borders are before, at and after the borders of blocks and groups.
void for_each_box(const Extents& shape, const std::function<void(const Extents&, const Extents&)>& visit) {
  for (int seed = 0; seed < 60; ++seed) {
    Extents offset, size;
    for (size_t d = 0; d < shape.size(); ++d) {
      const int64_t step = seed * 13 + static_cast<int64_t>(d) * 7;
      offset.push_back(step * 5 % shape[d]);
      size.push_back(1 + step * 11 % (shape[d] - offset.back()));
    }
    visit(offset, size);
  }
}

TEST(Quantized, IsReadInBoxes) {
  for (const char* name :
       {"llama_odd_fp8", "deepseek_v3_fp8", "deepseek_v4_fp8", "gpt_oss_mxfp4", "kimi_k3_mxfp4"}) {
    const checkpoint::BaseWeights base(golden(name), std::make_shared<HfWeights>(golden(name)),
                                       checkpoint::quantization_in(golden(name)));
    int quantized = 0;
    for (const auto& [tensor, whole] : tests::read_tensors(golden(name) / "plain.safetensors")) {
      ASSERT_EQ(base.at(tensor).shape, whole.sizes().vec()) << tensor;
      if (!base.is_quantized(tensor)) continue;
      ++quantized;
      for_each_box(whole.sizes().vec(), [&, &values = whole](const Extents& offset, const Extents& size) {
        at::Tensor want = values;
        for (size_t d = 0; d < size.size(); ++d)
          want = want.narrow(static_cast<int64_t>(d), offset[d], size[d]);
        const at::Tensor out = at::full(size, -1.0);
        base.read(tensor, offset, out);
        ASSERT_TRUE(at::equal(out, want)) << tensor << checkpoint::written(offset);
      });
    }
    EXPECT_GE(quantized, 4) << name;
    EXPECT_EQ(base.names().size(), tests::read_tensors(golden(name) / "plain.safetensors").size());
  }
}

// The tensor exceeds the size of one dequantization chunk, and chunks do not start at block borders.
TEST(Quantized, LargeTensorsAreReadAPieceAtATime) {
  const Folder folder;
  const int64_t rows = 3001, columns = 3000;
  const at::Tensor values = at::randint(0, 126, {rows, columns}, at::kByte).view(at::kFloat8_e4m3fn);
  const at::Tensor scales = at::rand({(rows + 99) / 100, (columns + 69) / 70}) + 0.5;
  tests::write_model(folder / "m", {}, {{"w.weight", values}, {"w.weight_scale_inv", scales}});
  const checkpoint::BaseWeights base(
      folder / "m", std::make_shared<HfWeights>(folder / "m"),
      checkpoint::Quantization{checkpoint::Quantization::Method::fp8, 100, 70});
  const at::Tensor wide = scales.repeat_interleave(100, 0).narrow(0, 0, rows).repeat_interleave(70, 1);
  const at::Tensor want = values.to(at::kFloat) * wide.narrow(1, 0, columns);
  EXPECT_EQ(base.at("w.weight").shape, (Extents{rows, columns}));
  const at::Tensor out = at::empty({rows, columns}, at::kBFloat16);
  base.read("w.weight", Extents{0, 0}, out);
  EXPECT_TRUE(at::equal(out, want.to(at::kBFloat16)));
}

}  // namespace
}  // namespace heddle

// The bundled models as units: names, ties, shapes, and a forward on meta.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "heddle/model/module_unit.h"
#include "lib/run/generate/generate.h"
#include "tests/llama_model.h"

namespace heddle {
namespace {

ModelConfig tiny() {
  ModelConfig config;
  config.vocab_size = 11;
  config.hidden_size = 10;
  config.intermediate_size = 12;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 3;
  config.num_key_value_heads = 1;
  config.head_dim = 4;
  return config;
}

Batch batch_on(at::Device device) {
  Batch batch;
  batch.tokens = at::zeros({2, 5}, at::TensorOptions(device).dtype(at::kLong));
  batch.labels = at::zeros({2, 5}, at::TensorOptions(device).dtype(at::kLong));
  return batch;
}

std::vector<std::string> names_of(Unit& unit) {
  std::vector<std::string> names;
  for (const ParameterSlot& slot : unit.parameters()) names.push_back(slot.name);
  return names;
}

TEST(Units, AreTheEmbeddingEachLayerAndTheHead) {
  const Units units = make_units(tiny(), at::kMeta);
  ASSERT_EQ(units.size(), 4u);
  EXPECT_EQ(units[0]->name(), "model.embed_tokens");
  EXPECT_EQ(units[2]->name(), "model.layers.1");
  EXPECT_EQ(names_of(*units[3]), (std::vector<std::string>{"model.norm.weight", "lm_head.weight"}));
  EXPECT_EQ(names_of(*units[1])[1], "model.layers.0.self_attn.q_proj.weight");
}

TEST(Units, ShareATiedTensorUnderOneName) {
  ModelConfig config = tiny();
  config.tie_word_embeddings = true;
  const Units units = make_units(config, at::kFloat);
  EXPECT_EQ(names_of(*units[3])[1], "model.embed_tokens.weight");
  EXPECT_TRUE(units[3]->parameters()[1].tensor->is_same(*units[0]->parameters()[0].tensor));
}

TEST(Units, UseTheTensorOfTheirSlots) {
  Units units = make_units(tiny(), at::kFloat);
  const Batch batch = batch_on(at::kCPU);
  units[0]->parameters()[0].point(at::full({11, 10}, 0.5));
  EXPECT_TRUE(at::equal(units[0]->forward({}, batch)[0], at::full({10, 10}, 0.5)));
}

TEST(Units, ReturnTheLossWithLabelsElseLogits) {
  Units units = make_units(tiny(), at::kFloat);
  Batch batch = batch_on(at::kCPU);
  const at::Tensor loss = logits_of(units)(batch);
  EXPECT_EQ(loss.sizes(), at::IntArrayRef({1}));
  batch.labels = at::Tensor();
  const at::Tensor logits = logits_of(units)(batch);
  EXPECT_EQ(logits.sizes(), at::IntArrayRef({2, 5, 11}));
  const at::Tensor again =
      at::cross_entropy_loss(logits.view({10, 11}), at::zeros({10}, at::kLong), {}, at::Reduction::Sum);
  EXPECT_NEAR(loss.item<float>(), again.item<float>(), 1e-4);
}

TEST(Units, RunForwardAndBackwardOnMeta) {
  Units units = make_units(tiny(), at::kMeta);
  logits_of(units)(batch_on(at::kMeta)).sum().backward();
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters())
      EXPECT_EQ(slot.tensor->grad().sizes(), slot.tensor->sizes()) << slot.name;
}

TEST(Units, CountPositionsFromZeroUnlessTheBatchGivesThem) {
  at::manual_seed(2);
  Units units = make_units(tiny(), at::kFloat);
  Batch batch = batch_on(at::kCPU);
  batch.tokens = at::arange(10, at::kLong).view({2, 5});
  const float counted = logits_of(units)(batch).item<float>();
  batch.positions = at::arange(5, at::kLong).repeat({2, 1});
  EXPECT_EQ(logits_of(units)(batch).item<float>(), counted);
  batch.positions = at::arange(5, at::kLong).mul(7).repeat({2, 1});
  EXPECT_NE(logits_of(units)(batch).item<float>(), counted);
  batch.positions.copy_(at::arange(5, at::kLong).repeat({2, 1}));
  EXPECT_EQ(logits_of(units)(batch).item<float>(), counted) << "positions changed in place";
}

TEST(Units, ListEveryModuleByPath) {
  const Units units = make_units(tiny(), at::kMeta);
  std::set<std::string> paths;
  for (const auto& unit : units)
    dynamic_cast<ModuleUnit&>(*unit).visit([&](const std::string& path, Module&) { paths.insert(path); });
  for (const char* path : {"model.embed_tokens", "model.layers.0.self_attn.core",
                           "model.layers.1.mlp.down_proj", "model.norm", "lm_head"})
    EXPECT_EQ(paths.count(path), 1u) << path;
}

}  // namespace
}  // namespace heddle

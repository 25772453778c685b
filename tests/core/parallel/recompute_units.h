// Units to recompute in tests: a small model, and chains of linear layers.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/parallel/recompute.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/activation.h"
#include "heddle/nn/linear.h"
#include "tests/llama_model.h"
#include "tests/toy_unit.h"

namespace heddle::tests {

using Mode = ActivationCheckpointing;
using Gradients = std::vector<at::Tensor>;

inline ModelConfig small_model() {
  ModelConfig shape;
  shape.vocab_size = 53;
  shape.hidden_size = 14;
  shape.intermediate_size = 23;
  shape.num_hidden_layers = 3;
  shape.num_attention_heads = 3;
  shape.num_key_value_heads = 1;
  shape.head_dim = 6;
  return shape;
}

inline Batch tokens() {
  Batch batch;
  batch.tokens = at::arange(24).remainder(53).view({4, 6});
  batch.labels = (batch.tokens * 3 + 1).remainder(53);
  return batch;
}

inline Units built_model(const ModelConfig& shape, Mode mode) {
  at::manual_seed(11);
  Units units = make_units(shape, at::kFloat);
  const Unit *first = units.front().get(), *last = units.back().get();
  parallel::recompute(units, first, last, mode);
  return units;
}

inline at::Tensor loss_of(Units& units, const Batch& batch) {
  Tensors flow;
  for (auto& unit : units) flow = unit->forward(std::move(flow), batch);
  return flow[0];
}

inline Gradients gradients_of(Unit& unit) {
  Gradients out;
  for (const ParameterSlot& slot : unit.parameters()) out.push_back(slot.tensor->grad());
  return out;
}

inline Gradients gradients_of(Units& units) {
  Gradients out;
  for (auto& unit : units)
    for (const at::Tensor& gradient : gradients_of(*unit)) out.push_back(gradient);
  return out;
}

inline void expect_equal(const Gradients& got, const Gradients& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(got[i].defined(), want[i].defined()) << i;
    EXPECT_TRUE(!want[i].defined() || at::equal(got[i], want[i])) << i;
  }
}

// A chain of linear layers with a gate in between.
class Row : public Module {
 public:
  Row(int layers, int64_t width) {
    for (int i = 0; i < layers; ++i) {
      layers_.push_back(std::make_unique<Linear>(width, width,
                                                 i % 2 == 0 ? Linear::Bias::zeros : Linear::Bias::none,
                                                 Init{Init::Kind::normal, 0.3}, at::kFloat));
      add_child("layer" + std::to_string(i), *layers_.back());
    }
  }
  std::string_view kind() const override { return "row"; }
  std::function<at::Tensor(at::Tensor)> between = [](at::Tensor x) { return model::swiglu(x, x); };

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override {
    for (auto& layer : layers_) x = between(layer->call(std::move(x), batch));
    return x;
  }

 private:
  std::vector<std::unique_ptr<Linear>> layers_;
};

inline std::unique_ptr<Unit> row(int layers, Mode mode, std::function<at::Tensor(at::Tensor)> between = {}) {
  at::manual_seed(3);
  auto module = std::make_unique<Row>(layers, 8);
  if (between) module->between = std::move(between);
  return parallel::recomputed(std::make_unique<ModuleUnit>("row", "row", std::move(module)), mode);
}

}  // namespace heddle::tests

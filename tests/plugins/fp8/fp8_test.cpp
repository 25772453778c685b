// Products in fp8 equal products of operands rounded by the test, and whole runs train with them.
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>

#include "heddle/model/module_unit.h"
#include "heddle/nn/linear.h"
#include "heddle/plugin/registry.h"
#include "heddle/plugin/transform.h"
#include "plugins/whole_runs.h"

namespace heddle::tests {
namespace {

// One layer that is called with rows.
class OneLayer : public Module {
 public:
  OneLayer() : layer(48, 32, Linear::Bias::zeros, {}, at::kCPU) { add_child("proj", layer); }
  std::string_view kind() const override { return "one"; }
  Linear layer;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override { return layer.call(x, batch); }
};

Units one_layer(OneLayer*& module) {
  auto owned = std::make_unique<OneLayer>();
  module = owned.get();
  Units units;
  units.push_back(std::make_unique<ModuleUnit>("one", "one", std::move(owned)));
  return units;
}

Transformed apply_fp8(Units& units, const std::string& section) {
  static PluginRegistry plugins({HEDDLE_BINARY_DIR "/plugins"});
  const auto* offered = plugins.find<OfferedTransform>("fp8");
  const auto transform = offered->make(offered->resolve(config::read_text(section, "run.yaml")).values);
  return transform->apply(units, {"run.yaml:2 fp8"});
}

at::Tensor by_hand(const at::Tensor& x, at::ScalarType type, double most) {
  const double scale = most / at::abs(x).max().item<double>();
  return (x * scale).clamp(-most, most).to(type).to(at::kDouble) / scale;
}

void expect_rounded(const at::Tensor& got, const at::Tensor& want) {
  EXPECT_LT((got.to(at::kDouble) - want).abs().max().item<double>(), 2e-6 * want.abs().max().item<double>());
}

TEST(Fp8, MultipliesRoundedOperandsInForwardAndBackward) {
  for (const std::string section : {"{enabled: true}", "{enabled: true, emulate: true}"}) {
    SCOPED_TRACE(section);
    OneLayer* module = nullptr;
    Units units = one_layer(module);
    EXPECT_EQ(apply_fp8(units, section).note, "products in fp8 in 1 layer");
    Linear& layer = module->layer;
    layer.weight.detach().normal_();
    layer.bias.detach().normal_();
    at::Tensor x = at::randn({2, 5, 48}).set_requires_grad(true);
    const at::Tensor y = module->call(x, {}), g = at::randn({2, 5, 32});
    y.backward(g);
    const at::Tensor rows = by_hand(x.detach().view({10, 48}), at::kFloat8_e4m3fn, 448),
                     weight = by_hand(layer.weight.detach(), at::kFloat8_e4m3fn, 448),
                     of_y = by_hand(g.view({10, 32}), at::kFloat8_e5m2, 57344);
    expect_rounded(y.detach().view({10, 32}), at::matmul(rows, weight.t()) + layer.bias.detach());
    expect_rounded(x.grad().view({10, 48}), at::matmul(of_y, weight));
    expect_rounded(layer.weight.grad(), at::matmul(of_y.t(), rows));
    expect_rounded(layer.bias.grad(), g.view({10, 32}).to(at::kDouble).sum(0));
  }
}

TEST(Fp8, TrainsEquallyOnShardsAndStages) {
  WholeRuns runs;
  runs.model =
      "{model_type: llama, vocab_size: 53, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 2, "
      "num_attention_heads: 4, num_key_value_heads: 4, max_position_embeddings: 16}";
  const std::string section = "fp8: {enabled: true, filter_fqns: [lm_head]}\n";
  const Told one = runs.train({"run", 1, "{strategy: single}", section}, "one", 4);
  EXPECT_NE(one.losses, runs.train({"run", 1, "{strategy: single}"}, "plain", 4).losses);
  for (const std::string& distributed : std::vector<std::string>{
           kFsdp2InFp32 + "}",
           "{strategy: single, pp_size: 2, pipeline: {pp_schedule: zb1p, pp_microbatch_size: 3}, "
           "activation_checkpointing: full}"}) {
    SCOPED_TRACE(distributed);
    const Told other = runs.train({"run", 2, distributed, section}, "other", 4);
    EXPECT_NEAR(other.losses[0], one.losses[0], 2e-5);
    EXPECT_NEAR(other.norms[0], one.norms[0], 2e-4 * one.norms[0]);
    // A value between two fp8 values may be rounded either way.
    for (size_t i = 1; i < one.losses.size(); ++i) EXPECT_NEAR(other.losses[i], one.losses[i], 2e-3);
  }
}

}  // namespace
}  // namespace heddle::tests

// Values and initial values of adapters.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "heddle/model/module_unit.h"
#include "heddle/nn/linear.h"
#include "heddle/parallel/build.h"
#include "plugins/lora/peft_units.h"

namespace heddle::tests {
namespace {

// Two linear layers with one input, computed by one call.
class TwoLayers : public Module {
 public:
  TwoLayers() : a_(6, 5, Linear::Bias::zeros, {}, at::kCPU), b_(6, 4, Linear::Bias::none, {}, at::kCPU) {
    add_child("a_proj", a_);
    add_child("b_proj", b_);
  }
  std::string_view kind() const override { return "pair"; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override {
    const model::FewTensors both = model::call_each({&a_, &b_}, x, batch, model::Outputs::columns);
    return both[0].sum() + (both[1] * both[1]).sum();
  }

 private:
  Linear a_, b_;
};

std::map<std::string, at::Tensor> parameters_of(const Units& units) {
  std::map<std::string, at::Tensor> out;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters()) out[slot.name] = *slot.tensor;
  return out;
}

Units two_layers() {
  Units units;
  units.push_back(std::make_unique<ModuleUnit>("pair", "pair", std::make_unique<TwoLayers>()));
  return units;
}

at::Tensor copy_of(const at::Tensor& tensor) {
  return tensor.detach().clone().set_requires_grad(true);
}

TEST(LoraValues, EqualTheFormulaWithItsGradients) {
  Units units = two_layers();
  (void)adapt(units, "{dim: 2, alpha: 7}");
  auto values = parameters_of(units);
  for (auto& [name, tensor] : values) tensor.detach().normal_();
  const at::Tensor x = at::randn({3, 6}).set_requires_grad(true);
  Batch batch;
  units[0]->module()->call(x, batch).backward();

  const at::Tensor y = copy_of(x);
  std::map<std::string, at::Tensor> leaves;
  const auto layer = [&](const std::string& name, const at::Tensor& bias) {
    const at::Tensor a = leaves[name + ".lora_A.weight"] = copy_of(values.at(name + ".lora_A.weight"));
    const at::Tensor b = leaves[name + ".lora_B.weight"] = copy_of(values.at(name + ".lora_B.weight"));
    const at::Tensor low = at::linear(y, a) * 3.5;
    return at::linear(y, values.at(name + ".weight").detach(), bias) + at::linear(low, b);
  };
  const at::Tensor first = layer("pair.a_proj", values.at("pair.a_proj.bias").detach()),
                   second = layer("pair.b_proj", {});
  (first.sum() + (second * second).sum()).backward();
  EXPECT_TRUE(x.grad().allclose(y.grad(), 1e-5, 1e-5));
  for (const auto& [name, leaf] : leaves)
    EXPECT_TRUE(values.at(name).grad().allclose(leaf.grad(), 1e-5, 1e-5)) << name;
  for (const auto& [name, tensor] : values) {
    EXPECT_EQ(tensor.requires_grad(), leaves.count(name) != 0) << name;
    EXPECT_EQ(tensor.grad().defined(), leaves.count(name) != 0) << name;
  }
}

TEST(LoraValues, EqualTheBaseWhenBIsZero) {
  Units plain = two_layers(), changed = two_layers();
  (void)adapt(changed, "{dim: 2}");
  auto base = parameters_of(plain), values = parameters_of(changed);
  for (auto& [name, tensor] : base) values.at(name).detach().copy_(tensor.detach());
  const at::Tensor x = at::randn({3, 6});
  Batch batch;
  const at::Tensor want = plain[0]->module()->call(x, batch), got = changed[0]->module()->call(x, batch);
  EXPECT_TRUE(want.equal(got));
}

// Returns the initial values of A of a layer with 4000 inputs, from the seed.
at::Tensor first_a(const std::string& init, uint64_t seed, int64_t first_row = 0, int64_t rows = 16) {
  class Wide : public Module {
   public:
    Wide() : wide_(4000, 3, Linear::Bias::none, {}, at::kMeta) { add_child("w_proj", wide_); }
    std::string_view kind() const override { return "wide"; }

   protected:
    at::Tensor forward(at::Tensor x, const Batch& batch) override { return wide_.call(std::move(x), batch); }

   private:
    Linear wide_;
  };
  Units units;
  units.push_back(std::make_unique<ModuleUnit>("wide", "wide", std::make_unique<Wide>()));
  (void)adapt(units, "{dim: 16, lora_A_init: " + init + "}");
  for (const ParameterSlot& slot : units[0]->parameters()) {
    if (!slot.name.ends_with("lora_A.weight")) continue;
    Shard shard = whole_shard(slot, {});
    shard.offset = {first_row, 0};
    shard.tensor = at::empty({rows, 4000});
    parallel::initialise(shard, seed);
    return shard.tensor;
  }
  return {};
}

TEST(LoraValues, InitializeANormalOrUniformByNameAndSeed) {
  const double bound = 1 / std::sqrt(4000.0);
  const at::Tensor normal = first_a("xavier", 42), uniform = first_a("kaiming", 42);
  EXPECT_NEAR(normal.std().item<double>(), std::sqrt(2 / 4016.0), 3e-4);
  EXPECT_GT(normal.abs().max().item<double>(), 3 * std::sqrt(2 / 4016.0));
  EXPECT_LE(uniform.abs().max().item<double>(), bound);
  EXPECT_NEAR(uniform.std().item<double>(), bound / std::sqrt(3.0), 2e-4);
  EXPECT_NEAR(uniform.mean().item<double>(), 0, 3e-4);
  for (const std::string init : {"xavier", "kaiming"}) {
    EXPECT_TRUE(first_a(init, 42).narrow(0, 5, 3).equal(first_a(init, 42, 5, 3))) << init;
    EXPECT_FALSE(first_a(init, 42).equal(first_a(init, 43))) << init;
  }
}

}  // namespace
}  // namespace heddle::tests

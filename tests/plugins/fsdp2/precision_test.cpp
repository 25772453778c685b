// Mixed precision equals the same arithmetic written in the test.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <utility>

#include "plugins/toy_units.h"
#include "plugins/training_world.h"

namespace heddle::tests {
namespace {

// One rank: computes with bf16 copies of fp32 parameters, and accumulates bf16 gradients in fp32.
class ByHand : public ParallelStage {
 public:
  explicit ByHand(Units units) : units_(std::move(units)) {
    for (auto& unit : units_)
      for (ParameterSlot& slot : unit->parameters()) {
        Shard shard = whole_shard(slot, {});
        shard.tensor = at::full(slot.tensor->sizes(), 0, at::kFloat).set_requires_grad(true);
        owned_.push_back(std::move(shard));
        slots_.push_back(slot);
      }
    sums_.resize(slots_.size());
  }
  Tensors forward(Tensors inputs, const Batch& batch) override {
    add_up();
    for (size_t i = 0; i < slots_.size(); ++i)
      *slots_[i].tensor = owned_[i].tensor.detach().to(at::kBFloat16).set_requires_grad(true);
    for (auto& unit : units_) inputs = unit->forward(std::move(inputs), batch);
    return inputs;
  }
  void finish_gradients() override {
    add_up();
    for (size_t i = 0; i < slots_.size(); ++i)
      owned_[i].tensor.mutable_grad() = std::exchange(sums_[i], at::Tensor());
  }
  std::span<Shard> owned() override { return owned_; }
  void parameters_changed(ParametersChange) override {}

 private:
  void add_up() {
    at::NoGradGuard no_gradients;
    for (size_t i = 0; i < slots_.size(); ++i) {
      at::Tensor& gradient = slots_[i].tensor->mutable_grad();
      if (!gradient.defined()) continue;
      sums_[i] = sums_[i].defined() ? sums_[i] + gradient.to(at::kFloat) : gradient.to(at::kFloat);
      gradient.reset();
    }
  }
  Units units_;
  std::vector<Shard> owned_;
  std::vector<ParameterSlot> slots_;
  std::vector<at::Tensor> sums_;
};

class ByHandStrategy : public IStrategy {
 public:
  Needs needs() const override { return {}; }
  std::unique_ptr<ParallelStage> parallelize(Units units, const DeviceMesh&,
                                             std::span<const Placed>) override {
    return std::make_unique<ByHand>(std::move(units));
  }
};

Training reference(int microbatches) {
  Training run;
  run.model.vocab_size = Toy::kVocabulary;
  run.make_units = [](int) { return toy_units({}); };
  run.make_strategy = [] { return std::make_unique<ByHandStrategy>(); };
  run.microbatches = microbatches;
  return run;
}

Training mixed(int ranks, int microbatches, const std::string& more = "", int replicas = 1) {
  Training run = reference(microbatches);
  run.make_strategy = nullptr;
  run.strategy = "fsdp2";
  run.section = "mp_policy: {param_dtype: bfloat16, reduce_dtype: float32}\n" + more;
  run.axes = {{"pp", 1}, {"dp_replicate", replicas}, {"dp_shard", ranks}, {"cp", 1}, {"tp", 1}};
  return run;
}

TEST(Fsdp2Precision, EqualsManualArithmeticBitForBitOnOneRank) {
  expect_bit_equal(train(mixed(1, 1)), train(reference(1)));
  expect_bit_equal(train(mixed(1, 3)), train(reference(3)));
}

// Two ranks compute with half of the sequences each, as two microbatches do.
TEST(Fsdp2Precision, EqualsManualArithmeticOnSeveralRanks) {
  const Outcome want = train(reference(2));
  for (const char* reshard : {"null", "true", "false"})
    expect_close(train(mixed(2, 1, std::string("reshard_after_forward: ") + reshard)), want);
  expect_close(train(mixed(2, 3, "defer_fsdp_grad_sync: true")), train(reference(6)));
  expect_close(train(mixed(2, 3, "defer_fsdp_grad_sync: false")), train(reference(6)));
  expect_close(train(mixed(2, 1, "", 2)), train(reference(4)));
}

TEST(Fsdp2Precision, DiffersFromFullPrecision) {
  Training full = mixed(1, 1);
  full.section = "mp_policy: {}";
  EXPECT_NE(train(full).losses, train(mixed(1, 1)).losses);
}

TEST(Fsdp2Precision, IsTheDefaultAlsoOnOneRank) {
  Training by_default = mixed(1, 1);
  by_default.section = "{}";
  expect_bit_equal(train(by_default), train(mixed(1, 1)));
}

struct PolicyDtypes {
  at::ScalarType input, parameter, shard;
};

// A unit with one parameter that checks the dtypes of its inputs.
Units checking_unit(const PolicyDtypes& want) {
  const auto body = [want](ToyUnit& unit, Tensors inputs, const Batch& batch) {
    EXPECT_EQ(inputs[0].scalar_type(), want.input);
    EXPECT_EQ(batch.extra.scalar_type(), want.input);
    EXPECT_EQ(unit.own[0].tensor.scalar_type(), want.parameter);
    return Tensors{inputs[0].to(at::kFloat) * unit.own[0].tensor.to(at::kFloat)};
  };
  std::vector<ToyUnit::Parameter> parameters = {{"w", at::full({3}, 2.0).set_requires_grad(true), {}}};
  Units units;
  units.push_back(std::make_unique<ToyUnit>("unit", std::move(parameters), body));
  return units;
}

void expect_dtypes(const std::string& policy, int ranks, const PolicyDtypes& want) {
  ThreadWorld::run(ranks, [&](Rendezvous& rendezvous) {
    const DeviceMesh mesh = mesh::build(std::vector<Axis>{{"dp_shard", ranks}}, rendezvous, "test: world");
    auto stage = make_strategy("fsdp2", "mp_policy: " + policy)->parallelize(checking_unit(want), mesh, {});
    Batch batch;
    batch.extra = at::full({3}, 1.0);
    const at::Tensor out = stage->forward({at::full({3}, 1.0)}, batch)[0];
    EXPECT_EQ(out.scalar_type(), at::kHalf);
    EXPECT_EQ(stage->owned()[0].tensor.scalar_type(), want.shard);
    out.sum().backward();
    stage->finish_gradients();
    EXPECT_EQ(stage->owned()[0].tensor.grad().scalar_type(), want.shard);
    stage->reshard();
  });
}

TEST(Fsdp2Precision, CastsInputsAndOutputsAsConfigured) {
  for (const int ranks : {1, 2}) {
    expect_dtypes("{param_dtype: bfloat16, output_dtype: float16, cast_forward_inputs: true}", ranks,
                  {at::kBFloat16, at::kBFloat16, at::kFloat});
    expect_dtypes("{param_dtype: bfloat16, reduce_dtype: float32, output_dtype: float16}", ranks,
                  {at::kFloat, at::kBFloat16, at::kFloat});
    expect_dtypes("{output_dtype: float16, reduce_dtype: bfloat16}", ranks,
                  {at::kFloat, at::kFloat, at::kFloat});
  }
}

TEST(Fsdp2Precision, KeepsTheLossInFullPrecision) {
  ThreadWorld::run(1, [&](Rendezvous& rendezvous) {
    const DeviceMesh mesh = mesh::build(std::vector<Axis>{{"dp_shard", 1}}, rendezvous, "test: world");
    auto stage = make_strategy("fsdp2", "mp_policy: {param_dtype: bfloat16, output_dtype: bfloat16}")
                     ->parallelize(toy_units({}), mesh, {});
    Batch batch;
    batch.tokens = at::full({2, 3}, 4, at::kLong);
    EXPECT_EQ(stage->forward({}, batch)[0].scalar_type(), at::kBFloat16);  // logits
    batch.labels = batch.tokens;
    EXPECT_EQ(stage->forward({}, batch)[0].scalar_type(), at::kFloat);
  });
}

TEST(Fsdp2Precision, GathersParametersOfTwoDtypesInOneUnit) {
  Training run = reference(1);
  run.strategy = "single";
  run.make_strategy = nullptr;
  run.make_units = [](int) {
    Toy real{.meta = false};
    Units units = toy_units(real);
    for (size_t i = 1; i < 4; ++i) {
      at::Tensor& scale = toy_at(units, i).own[2].tensor;
      scale = scale.detach().to(at::kDouble).set_requires_grad(true);
    }
    return units;
  };
  const Outcome want = train(run);
  Training split = run;
  split.strategy = "fsdp2";
  split.section = "mp_policy: {}";
  for (const int ranks : {1, 2, 3}) {
    split.axes = {{"dp_shard", ranks}};
    expect_close(train(split), want);
  }
}

}  // namespace
}  // namespace heddle::tests

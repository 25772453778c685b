// Parameters with their own compute dtype, and shards in host memory.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

// A unit of two parameters that records its compute dtypes. "pinned" has the dtype that its model sets.
class PinnedUnit : public ToyUnit {
 public:
  using ToyUnit::ToyUnit;
  std::optional<at::ScalarType> pin;
  std::vector<ParameterSlot> parameters() override {
    std::vector<ParameterSlot> slots = ToyUnit::parameters();
    slots.back().compute = pin;
    return slots;
  }
};

struct Dtypes {
  at::ScalarType plain, pinned, shard, gradient;
};

Units pinned_unit(at::ScalarType storage, std::optional<at::ScalarType> pin, Dtypes* seen) {
  const auto tensor = [&](double value) { return at::full({5, 3}, value, storage).set_requires_grad(true); };
  const auto body = [seen](ToyUnit& unit, Tensors x, const Batch&) {
    seen->plain = unit.own[0].tensor.scalar_type();
    seen->pinned = unit.own[1].tensor.scalar_type();
    const at::Tensor y = x[0] * unit.own[0].tensor.to(at::kFloat) * unit.own[1].tensor.to(at::kFloat);
    return Tensors{y.sum()};
  };
  auto unit = std::make_unique<PinnedUnit>(
      "unit", std::vector<ToyUnit::Parameter>{{"plain", tensor(2.0), {}}, {"pinned", tensor(3.0), {}}}, body);
  unit->pin = pin;
  Units units;
  units.push_back(std::move(unit));
  return units;
}

Dtypes dtypes_of(const std::string& policy, at::ScalarType storage, std::optional<at::ScalarType> pin,
                 int ranks, Events* events = nullptr) {
  Dtypes out{};
  ThreadWorld::run(ranks, [&](Rendezvous& rendezvous) {
    Events mine;
    RecordingRendezvous recording(rendezvous, &mine);
    const DeviceMesh mesh = mesh::build(shards(ranks), recording, "test: world");
    Dtypes seen{};
    auto stage = make_strategy("fsdp2", "mp_policy: " + policy)
                     ->parallelize(pinned_unit(storage, pin, &seen), mesh, {});
    stage->expect_last_backward();
    stage->forward({at::full({5, 3}, 1.0)}, Batch())[0].backward();
    stage->finish_gradients();
    const Shard& pinned = stage->owned()[1];
    EXPECT_EQ(pinned.name, "pinned");
    seen.shard = pinned.tensor.scalar_type();
    seen.gradient = pinned.tensor.grad().scalar_type();
    if (pinned.tensor.numel() > 0) {
      EXPECT_EQ(pinned.tensor.grad().max().item<double>(), 2.0 * ranks);
    }
    if (mesh.rank("world") == 0) out = seen;
    if (mesh.rank("world") == 0 && events != nullptr) *events = mine;
  });
  return out;
}

TEST(Fsdp2ComputeDtype, FollowsThePolicyUnlessTheModelSetsAnother) {
  for (const int ranks : {1, 2, 4}) {
    SCOPED_TRACE(ranks);
    // Stored in fp32 with a lower dtype in the policy: computes in the policy's dtype, and the shards are the
    // main weights.
    Dtypes got = dtypes_of("{param_dtype: bfloat16, reduce_dtype: float32}", at::kFloat, {}, ranks);
    EXPECT_EQ(got.plain, at::kBFloat16);
    EXPECT_EQ(got.pinned, at::kBFloat16);
    EXPECT_EQ(got.shard, at::kFloat);
    got = dtypes_of("{param_dtype: float32}", at::kFloat, {}, ranks);
    EXPECT_EQ(got.plain, at::kFloat);
    EXPECT_EQ(got.pinned, at::kFloat);
    // The model's dtype takes precedence, and does not affect the other parameter of the unit.
    got = dtypes_of("{param_dtype: bfloat16, reduce_dtype: float32}", at::kFloat, at::kFloat, ranks);
    EXPECT_EQ(got.plain, at::kBFloat16);
    EXPECT_EQ(got.pinned, at::kFloat);
    EXPECT_EQ(got.gradient, at::kFloat);
    got = dtypes_of("{param_dtype: bfloat16}", at::kBFloat16, at::kFloat, ranks);
    EXPECT_EQ(got.plain, at::kBFloat16);
    EXPECT_EQ(got.pinned, at::kFloat);
    EXPECT_EQ(got.shard, at::kBFloat16);  // stored as before
    // The storage dtype, if there is no policy.
    got = dtypes_of("{}", at::kBFloat16, {}, ranks);
    EXPECT_EQ(got.plain, at::kBFloat16);
  }
}

TEST(Fsdp2ComputeDtype, GathersAndReducesTwoDtypesOfAUnitSeparately) {
  Events events;
  dtypes_of("{param_dtype: bfloat16}", at::kFloat, {}, 2, &events);
  EXPECT_EQ(count(events, "all_gather"), 1);
  EXPECT_EQ(count(events, "reduce_scatter"), 1);
  dtypes_of("{param_dtype: bfloat16, reduce_dtype: bfloat16}", at::kFloat, at::kFloat, 2, &events);
  EXPECT_EQ(count(events, "all_gather"), 2);
  EXPECT_EQ(count(events, "reduce_scatter"), 2);
}

// Inputs in fp32 reach a unit whose parameters are all pinned to fp32, and its output is not cast.
TEST(Fsdp2ComputeDtype, DoesNotCastInputsAndOutputsOfAPinnedUnit) {
  const auto dtypes = [](std::optional<at::ScalarType> pin, int ranks) {
    std::pair<at::ScalarType, at::ScalarType> out;
    ThreadWorld::run(ranks, [&](Rendezvous& rendezvous) {
      const DeviceMesh mesh = mesh::build(shards(ranks), rendezvous, "test: world");
      at::ScalarType input{};
      const auto body = [&](ToyUnit&, Tensors x, const Batch&) {
        input = x[0].scalar_type();
        return x;
      };
      auto unit = std::make_unique<PinnedUnit>(
          "unit", std::vector<ToyUnit::Parameter>{{"w", at::full({3}, 1.0).set_requires_grad(true), {}}},
          body);
      unit->pin = pin;
      Units units;
      units.push_back(std::move(unit));
      auto stage = make_strategy("fsdp2",
                                 "mp_policy: {param_dtype: bfloat16, output_dtype: float16, "
                                 "cast_forward_inputs: true}")
                       ->parallelize(std::move(units), mesh, {});
      const at::Tensor output = stage->forward({at::full({3}, 1.0)}, Batch())[0];
      if (mesh.rank("world") == 0) out = {input, output.scalar_type()};
      stage->reshard();
    });
    return out;
  };
  for (const int ranks : {1, 2}) {
    EXPECT_EQ(dtypes(std::nullopt, ranks), std::pair(at::kBFloat16, at::kHalf));
    EXPECT_EQ(dtypes(at::kFloat, ranks), std::pair(at::kFloat, at::kFloat));
  }
}

// Gradients 1 and 2^-9: their sum is 1 in bfloat16 and 1 + 2^-9 in fp32.
TEST(Fsdp2ComputeDtype, ReducesPinnedFp32ParametersInFp32) {
  const auto gradient = [](std::optional<at::ScalarType> pin) {
    double out = 0;
    ThreadWorld::run(2, [&](Rendezvous& rendezvous) {
      const DeviceMesh mesh = mesh::build(shards(2), rendezvous, "test: world");
      Dtypes seen{};
      auto stage = make_strategy("fsdp2", "mp_policy: {param_dtype: bfloat16, reduce_dtype: bfloat16}")
                       ->parallelize(pinned_unit(at::kFloat, pin, &seen), mesh, {});
      stage->expect_last_backward();
      const double input = mesh.rank("world") == 0 ? 1.0 : 0x1.0p-9;
      (stage->forward({at::full({5, 3}, input)}, Batch())[0] * 0.5).backward();
      stage->finish_gradients();
      if (mesh.rank("world") == 0) out = stage->owned()[1].tensor.grad().max().item<double>();
    });
    return out;
  };
  EXPECT_EQ(gradient({}), 1.0);
  EXPECT_EQ(gradient(at::kFloat), 1.0 + 0x1.0p-9);
}

// On the CPU the shards are in host memory already, so the bits are equal.
TEST(Fsdp2Offload, GivesTheSameBitsOnTheCpu) {
  for (const char* policy :
       {"{param_dtype: float32, reduce_dtype: float32}", "{param_dtype: bfloat16, reduce_dtype: float32}"})
    for (const int ranks : {1, 2, 3})
      for (const char* offload : {"{}", "{pin_memory: false}"}) {
        const std::string section = std::string("mp_policy: ") + policy + "\n";
        Training run = toy("fsdp2", shards(ranks), section);
        run.microbatches = 2;
        run.steps = 6;
        const Outcome want = train(run);
        run.section += std::string("offload_policy: ") + offload;
        expect_bit_equal(train(run), want);
      }
}

}  // namespace
}  // namespace heddle::tests

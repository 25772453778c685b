// Time at which the backward frees gathered parameters: not while the unit still reads them, and equal on all
// ranks.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "plugins/megatron_runs.h"

namespace heddle::tests {
namespace {

std::vector<Training> all_sharded(Toy shape = {}) {
  return {toy("fsdp2", shards(2), "", shape), toy("fsdp2", shards(2), "reshard_after_forward: true", shape),
          toy_like(mfsdp(2, zero(3)), shape), toy_like(megatron(2, fsdp("optim_grads_params")), shape)};
}

// y = x + x w' + x' w, where primes are detached: the gradient of w arrives before that of x, which needs w.
Tensors detached_use(ToyUnit& unit, Tensors inputs, const Batch&) {
  const at::Tensor &x = inputs[0], &w = unit.own[0].tensor;
  const at::Tensor first = x + x * w.detach();  // the last operation of the backward
  return {first + x.detach() * w};
}

Units units_with_detached_use(bool foreign) {
  Toy shape;
  shape.meta = false;
  shape.foreign = foreign;
  Units units = toy_units(shape);
  for (size_t i = 1; i + 1 < units.size(); ++i) {
    const std::string name(units[i]->name());
    std::vector<ToyUnit::Parameter> own = {
        {name + ".w", at::full({Toy::kWidth}, 0.3).set_requires_grad(true), {}, foreign}};
    units[i] = std::make_unique<ToyUnit>(name, std::move(own), detached_use);
  }
  return units;
}

TEST(FreedParameters, AreKeptForTheGradientOfTheInput) {
  for (const bool foreign : {true, false})
    for (const auto checkpointing : {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
      Training alone = toy("single", {});
      alone.make_units = [foreign](int) { return units_with_detached_use(foreign); };
      const Outcome want = train(alone);
      for (Training run : all_sharded()) {
        SCOPED_TRACE(run.strategy + " " + run.section);
        run.make_units = alone.make_units;
        run.checkpointing = checkpointing;
        expect_close(train(run), want);
      }
    }
}

// The head is tied to the embedding, whose unit also has a frozen parameter. If the backward of one rank ends
// at the head, both ranks gather the table equally often.
TEST(FreedParameters, AreGatheredEquallyIfABackwardEndsEarly) {
  Toy tied{.tied = true};
  const auto make_units = [tied](int) {
    Units units = toy_units(tied);
    toy_at(units, 0).own.push_back({"embed.frozen", at::full({4}, 1.0), {}});
    return units;
  };
  for (const std::vector<double>& used : {std::vector<double>{1, -1}, {-1, 1}}) {
    Training alone = toy("single", {}, "", tied);
    alone.microbatches = 2;
    alone.make_units = make_units;
    use_extra_where(alone, used);
    const Outcome want = train(alone);
    for (Training run : all_sharded(tied)) {
      SCOPED_TRACE(run.strategy + " " + run.section);
      run.make_units = make_units;
      use_extra_where(run, used);
      expect_close(train(run), want);
    }
  }
}

}  // namespace
}  // namespace heddle::tests

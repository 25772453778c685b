// When gathered parameters are freed in a backward: not while its unit still reads them, and alike on all
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

// y = x + x w' + x' w, where a prime takes no part in the backward: w has its gradient before that of x, for
// which it is read.
Tensors detached_use(ToyUnit& unit, Tensors inputs, const Batch&) {
  const at::Tensor &x = inputs[0], &w = unit.own[0].tensor;
  const at::Tensor first = x + x * w.detach();  // so the last in the backward
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

TEST(FreedParameters, AreThereForTheGradientOfTheInput) {
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

// The head is tied to the embedding, whose unit holds a frozen parameter as well. Where the backward of one
// rank ends at the head, both ranks gather the table as often.
TEST(FreedParameters, AreGatheredAlikeWhenABackwardEndsEarly) {
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

// Every optimizer under every split equals one rank, and Muon equals its formula in fp64.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cmath>

#include "heddle/mesh/call.h"
#include "heddle/plugin/optimizer.h"
#include "plugins/megatron_runs.h"
#include "plugins/pipelines.h"

namespace heddle::tests {
namespace {

std::unique_ptr<IOptimizer> make_optimizer(const std::string& name, const std::string& fields = "{}") {
  return make_offered<OfferedOptimizer>("optimizer", name, fields);
}

class Optimizers : public ::testing::TestWithParam<std::string> {};

TEST_P(Optimizers, EqualSingleUnderEverySplit) {
  const auto with = [](Training run) {
    run.make_optimizer = [] { return make_optimizer(GetParam()); };
    run.steps = 6;
    return run;
  };
  expect_equal_on(with(llama_alone()), {"fsdp2 dp3", "ddp dp2", "megatron_fsdp(zero_dp_strategy: 3) dp2",
                                        "megatron(use_distributed_optimizer: true) dp2"});
  expect_equal_on(with(four_heads()), {"single tp2", "fsdp2 dp2 tp2"});
  expect_same_bits_twice(on(with(llama_alone()), "fsdp2 dp3"));
}

INSTANTIATE_TEST_SUITE_P(Of, Optimizers, ::testing::Values("AdamW", "Adam", "Muon"),
                         [](const auto& info) { return info.param; });

// The iteration of dion in fp64, for the whole matrix.
at::Tensor orthogonal(at::Tensor x) {
  const bool tall = x.size(0) > x.size(1);
  if (tall) x = x.t();
  x = x / (x.norm() + 1e-8);
  for (const auto& [a, b, c] : {std::tuple{4.0848, -6.8946, 2.9270},
                                {3.9505, -6.3029, 2.6377},
                                {3.7418, -5.5913, 2.3037},
                                {2.8769, -3.1427, 1.2046},
                                {2.8366, -3.0525, 1.2012}}) {
    const at::Tensor s = at::mm(x, x.t());
    x = a * x + at::mm(b * s + c * at::mm(s, s), x);
  }
  return tall ? x.t() : x;
}

struct OneParameter {
  Shard shard;
  AloneRendezvous rendezvous;
  DeviceMesh mesh = mesh::build({}, rendezvous, "");
  OneParameter(const std::string& name, at::Tensor values) {
    shard.name = name;
    shard.shape = values.sizes().vec();
    shard.offset.assign(shard.shape.size(), 0);
    shard.tensor = values.requires_grad_();
  }
  TrainedShard trained() const { return {&shard, shard.tensor.detach()}; }
};

TEST(Muon, EqualsItsFormulaInDouble) {
  for (const bool nesterov : {false, true})
    for (const bool tall : {false, true}) {
      const std::vector<int64_t> shape = tall ? std::vector<int64_t>{9, 4} : std::vector<int64_t>{4, 9};
      OneParameter one("layer.weight", at::randn(shape));
      at::Tensor weight = one.shard.tensor.detach().to(at::kDouble), momentum = at::zeros_like(weight);
      const auto muon = make_optimizer("Muon", nesterov ? "{nesterov: true}" : "{}");
      const std::vector<TrainedShard> trained = {one.trained()};
      muon->start(trained, one.mesh);
      for (int step = 0; step < 4; ++step) {
        const at::Tensor gradient = at::randn(shape);
        one.shard.tensor.mutable_grad() = gradient.clone();
        muon->update({0.1, 0.2, {}, {}});
        momentum = 0.95 * momentum + gradient.to(at::kDouble);
        const at::Tensor direction = nesterov ? gradient.to(at::kDouble) + 0.95 * momentum : momentum;
        const double factor = std::sqrt(static_cast<double>(shape[0]) / static_cast<double>(shape[1]));
        weight = weight * (1 - 0.1 * 0.2) - 0.1 * factor * orthogonal(direction);
        EXPECT_LT((one.shard.tensor - weight).abs().max().item<double>(), 1e-4) << nesterov << tall << step;
      }
      // Checks that singular values are near 1, so that the formula is meaningful.
      const at::Tensor once = orthogonal(momentum);
      EXPECT_NEAR(once.norm().item<double>(), 2.0, 0.3);
    }
}

TEST(Muon, UsesAdamWForEmbeddingsTheHeadVectorsAndStacks) {
  const auto moved = [](const std::string& optimizer, const std::string& name, double decay) {
    OneParameter one(name,
                     at::full(name == "norm" ? std::vector<int64_t>{4} : std::vector<int64_t>{4, 4}, 2.0));
    const auto made = make_optimizer(optimizer, "{betas: [0.9, 0.95]}");
    const std::vector<TrainedShard> trained = {one.trained()};
    made->start(trained, one.mesh);
    one.shard.tensor.mutable_grad() = at::full(one.shard.shape, 1.0);
    made->update({0.1, decay, {}, {}});
    EXPECT_TRUE(made->state()[0].has("exp_avg"));
    return one.shard.tensor.detach().flatten()[0].item<double>();
  };
  EXPECT_EQ(moved("Muon", "norm", 0.5), moved("AdamW", "norm", 0.5));
  EXPECT_EQ(moved("Muon", "model.embed_tokens.weight", 0.5), moved("AdamW", "model.embed_tokens.weight", 0));
  EXPECT_NEAR(moved("Muon", "lm_head.weight", 0.5), 2.0 - 0.1 / 2, 1e-6);  // lr / sqrt(4)
}

// Factors of the learning rate, as OfferedOptimizer::rate_keys passes them to the plugin.
TEST(Muon, HasSeparateLearningRates) {
  const auto moved_by = [](const std::string& fields, const std::string& name) {
    OneParameter one(name, at::full(name == "norm" ? at::IntArrayRef{4} : at::IntArrayRef{4, 4}, 2.0));
    const auto muon = make_optimizer("Muon", fields);
    const std::vector<TrainedShard> trained = {one.trained()};
    muon->start(trained, one.mesh);
    one.shard.tensor.mutable_grad() = at::full(one.shard.shape, 1.0);
    muon->update({0.1, 0, {}, {}});
    return 2 - one.shard.tensor.detach()
                   .flatten()[0]
                   .item<double>();  // AdamW's first step equals its learning rate
  };
  const std::string both = "{scalar_lr: 0.5, embed_lr: 0.25, lm_head_lr: 2.0}", scalar = "{scalar_lr: 0.5}";
  EXPECT_NEAR(moved_by(both, "norm"), 0.05, 1e-6);
  EXPECT_NEAR(moved_by(both, "model.embed_tokens.weight"), 0.025, 1e-6);
  EXPECT_NEAR(moved_by(both, "lm_head.weight"), 0.2, 1e-6);
  EXPECT_NEAR(moved_by(scalar, "model.embed_tokens.weight"), 0.05, 1e-6);
  EXPECT_NEAR(moved_by(scalar, "lm_head.weight"), 0.05, 1e-6);  // 0.1 / sqrt(4)
  EXPECT_EQ(moved_by(both, "layer.weight"), moved_by("{}", "layer.weight"));
}

TEST(Muon, IsRefusedUnderPostValidationByName) {
  Training run = pipeline("1f1b", 2, 3);
  run.pipeline.post_validation = true;
  run.pipeline.where = "distributed.pipeline";
  ThreadWorld::run(2, [&](Rendezvous& rendezvous) {
    const DeviceMesh mesh = mesh::build(run.axes, rendezvous, "test");
    Stages stages = build(run, mesh);
    const auto muon = make_optimizer("Muon");
    EXPECT_EQ(
        error_of([&] { Step(stages, mesh, {}, *muon); }),
        "error[config] distributed.pipeline.pp_post_validation: post-validation takes updates back, and "
        "the optimizer 'Muon' cannot\n  hint: set pp_post_validation: false, or optimizer._target_: "
        "torch.optim.AdamW");
  });
}

}  // namespace
}  // namespace heddle::tests

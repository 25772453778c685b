// One step on one rank: independence of the microbatch split, label counts, and errors of faulty models.
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/parallel/single.h"
#include "heddle/base/error.h"
#include "heddle/train/step.h"
#include "heddle/transport/threads.h"
#include "tests/thrown.h"
#include "tests/toy_unit.h"

namespace heddle {
namespace {

constexpr int64_t kVocabulary = 7;

// A bigram model: the next token's logits are a table row.
at::Tensor bigram(const at::Tensor& table, const Tensors&, const Batch& batch) {
  const at::Tensor logits = at::embedding(table, batch.tokens).flatten(0, 1);
  if (!batch.labels.defined()) return logits;
  return at::nll_loss(at::log_softmax(logits, 1), batch.labels.flatten(), {}, at::Reduction::Sum,
                      Batch::kIgnore);
}

using Model = at::Tensor (*)(const at::Tensor& table, const Tensors&, const Batch&);

at::Tensor silent(const at::Tensor& table, const Tensors& inputs, const Batch& batch) {  // returns no loss
  Batch unlabelled = batch;
  unlabelled.labels = at::Tensor();
  return bigram(table, inputs, unlabelled);
}

// The loss is inf, and the gradients are those of bigram.
at::Tensor infinite(const at::Tensor& table, const Tensors& inputs, const Batch& batch) {
  return bigram(table, inputs, batch) + INFINITY;
}

// The gradients are finite, but their squares overflow.
at::Tensor steep(const at::Tensor& table, const Tensors& inputs, const Batch& batch) {
  return bigram(table, inputs, batch) * 1e36;
}

void on_one_rank(Model model, const StepConfig& config, const std::function<void(Step&, Stages&)>& body) {
  ThreadWorld::run(1, [&](Rendezvous& rendezvous) {
    const std::vector<Axis> axes = {{"pp", 1}, {"tp", 1}};
    const DeviceMesh mesh = mesh::build(axes, rendezvous, "");
    Plan plan;
    plan.strategy = parallel::make_single();
    Units units;
    units.push_back(tests::unit_of(
        "table",
        at::zeros({kVocabulary, kVocabulary}, at::device(at::kMeta).dtype(at::kFloat)).requires_grad_(),
        model, {Init::Kind::normal, 0.5}));
    Stages stages = parallel::build(std::move(units), plan, mesh, {}, 42);
    Step step(stages, mesh, config);
    body(step, stages);
  });
}

void on_one_rank(const StepConfig& config, const std::function<void(Step&, Stages&)>& body) {
  on_one_rank(bigram, config, body);
}

Batch batch_of(int64_t samples) {
  Batch batch;
  batch.tokens = at::arange(samples * 5).view({samples, 5}).remainder(kVocabulary);
  batch.labels = (batch.tokens * 3 + 1).remainder(kVocabulary);
  return batch;
}

std::vector<Batch> in_microbatches(const Batch& whole, std::vector<int64_t> samples) {
  std::vector<Batch> parts;
  int64_t at = 0;
  for (const int64_t count : samples) {
    Batch part;
    part.tokens = whole.tokens.narrow(0, at, count);
    part.labels = whole.labels.narrow(0, at, count);
    parts.push_back(part);
    at += count;
  }
  return parts;
}

std::vector<double> losses_and_norms(const std::vector<Batch>& microbatches) {
  std::vector<double> out;
  on_one_rank({}, [&](Step& step, Stages&) {
    for (int i = 0; i < 4; ++i) {
      const StepReport report = step.run(microbatches, 0.05, 0.1);
      out.push_back(report.loss.item<double>());
      out.push_back(report.grad_norm.item<double>());
    }
  });
  return out;
}

TEST(Step, MicrobatchesOfUnequalLabelCountsEqualOneBatch) {
  Batch whole = batch_of(6);
  whole.labels.narrow(0, 0, 2).fill_(Batch::kIgnore);  // the first microbatch has only one label
  whole.labels[0][3].fill_(2);
  const std::vector<double> at_once = losses_and_norms({whole});
  const std::vector<double> in_parts = losses_and_norms(in_microbatches(whole, {2, 1, 3}));
  for (size_t i = 0; i < at_once.size(); ++i) EXPECT_NEAR(in_parts[i] / at_once[i], 1.0, 2e-6) << i;
  EXPECT_LT(at_once[6], at_once[0]);
}

TEST(Step, CountsTheLabelsAndReportsTheMeanLoss) {
  on_one_rank({}, [](Step& step, Stages& stages) {
    Batch batch = batch_of(2);
    batch.labels[0].fill_(Batch::kIgnore);
    stages[0]->owned()[0].tensor.detach().zero_();  // uniform distribution over tokens
    const StepReport report = step.evaluate(std::vector<Batch>{batch});
    EXPECT_EQ(report.label_tokens, 5);
    EXPECT_NEAR(report.loss.item<double>(), std::log(7.0), 1e-6);
    EXPECT_FALSE(report.grad_norm.defined());
  });
}

TEST(Step, SumsLossesAndSkipsTheNormInABenchmark) {
  const auto after_one_step = [](StepConfig config, StepReport& report) {
    at::Tensor moment;
    config.max_norm.reset();
    on_one_rank(config, [&](Step& step, Stages&) {
      report = step.run(in_microbatches(batch_of(6), {2, 4}), 0.05, 0.1);
      moment = step.optimizer_state().at(0).at("exp_avg").clone();
    });
    return moment;
  };
  StepConfig benchmark;
  benchmark.benchmark = true;
  StepReport mean, sum;
  const at::Tensor of_mean = after_one_step({}, mean), of_sum = after_one_step(benchmark, sum);
  EXPECT_EQ(sum.label_tokens, 30);
  EXPECT_TRUE(at::allclose(of_sum, of_mean * 30, 1e-5, 1e-7));
  EXPECT_NEAR(sum.loss.item<double>(), mean.loss.item<double>(), 1e-7);  // the reported loss is the mean
  EXPECT_FALSE(sum.grad_norm.defined());
  EXPECT_FALSE(sum.skipped());
  on_one_rank(infinite, benchmark, [](Step& step, Stages& stages) {
    const at::Tensor before = stages[0]->owned()[0].tensor.detach().clone();
    EXPECT_FALSE(step.run(std::vector<Batch>{batch_of(2)}, 0.1, 0.0).skipped());
    EXPECT_FALSE(at::equal(before, stages[0]->owned()[0].tensor));
  });
}

TEST(Step, IsZeroWithoutLabels) {
  on_one_rank({}, [](Step& step, Stages& stages) {
    Batch batch = batch_of(2);
    batch.labels.fill_(Batch::kIgnore);
    const StepReport report = step.run(std::vector<Batch>{batch}, 0.1, 0.0);
    EXPECT_EQ(report.loss.item<double>(), 0.0);
    EXPECT_EQ(report.grad_norm.item<double>(), 0.0);
    EXPECT_FALSE(stages[0]->owned()[0].tensor.isnan().any().item<bool>());
  });
}

TEST(Step, SkipsUpdatesWhoseNormIsNotFiniteWithAndWithoutClipping) {
  for (const std::optional<double> max_norm : {std::optional(1.0), std::optional<double>()}) {
    StepConfig config;
    config.max_norm = max_norm;
    on_one_rank(config, [](Step& step, Stages& stages) {
      const std::vector<Batch> batches = {batch_of(3)};
      EXPECT_FALSE(step.run(batches, 0.1, 0.1).skipped());
      const at::Tensor table = stages[0]->owned()[0].tensor.detach();
      table[0][0] = NAN;
      const at::Tensor before = table.clone(), average = step.optimizer_state()[0].at("exp_avg").clone();
      for (int i = 0; i < 3; ++i) {
        const StepReport report = step.run(batches, 0.1, 0.1);
        EXPECT_TRUE(report.skipped());
        EXPECT_TRUE(std::isnan(report.grad_norm.item<double>()));
      }
      EXPECT_TRUE(at::allclose(table, before, 0, 0, /*equal_nan=*/true));
      EXPECT_TRUE(at::equal(step.optimizer_state()[0].at("exp_avg"), average));
      EXPECT_EQ(step.optimizer_state()[0].at("step").item<float>(), 1.0f);
      EXPECT_FALSE(stages[0]->owned()[0].tensor.grad().defined());
      EXPECT_FALSE(step.evaluate(batches).skipped());
      table[0][0] = 0;
      EXPECT_FALSE(step.run(batches, 0.1, 0.1).skipped());
      EXPECT_TRUE(table.isfinite().all().item<bool>());
    });
  }
}

void expect_skipped(Model model, bool finite_loss) {
  for (const double norm_type : {2.0, 3.0, static_cast<double>(INFINITY)}) {
    StepConfig config;
    config.norm_type = norm_type;
    on_one_rank(model, config, [&](Step& step, Stages& stages) {
      const at::Tensor table = stages[0]->owned()[0].tensor.detach(), before = table.clone();
      const StepReport report = step.run(std::vector<Batch>{batch_of(3)}, 0.1, 0.1);
      EXPECT_TRUE(report.skipped());
      EXPECT_TRUE(std::isfinite(report.grad_norm.item<double>()));
      EXPECT_EQ(std::isfinite(report.loss.item<double>()), finite_loss);
      EXPECT_TRUE(at::equal(table, before));
      EXPECT_FALSE(table.grad().defined());
    });
  }
}

TEST(Step, SkipsAnUpdateWhoseLossIsNotFiniteThoughItsNormIs) {
  expect_skipped(infinite, false);
}

TEST(Step, SkipsAnUpdateWhoseNormHasNoSquareInFloat32AlsoWhereItWouldBeClipped) {
  expect_skipped(steep, true);
}

TEST(Step, ReportsTheNormBeforeClipping) {
  const auto first_norm = [](std::optional<double> max_norm) {
    double norm = 0;
    StepConfig config;
    config.max_norm = max_norm;
    on_one_rank(config, [&](Step& step, Stages&) {
      norm = step.run(std::vector<Batch>{batch_of(3)}, 0.1, 0.0).grad_norm.item<double>();
    });
    return norm;
  };
  EXPECT_GT(first_norm(std::nullopt), 0.1);
  EXPECT_EQ(first_norm(1e-3), first_norm(std::nullopt));
}

TEST(Step, DoesNotClipWithoutAMaximumNorm) {
  const auto after = [](std::optional<double> max_norm) {
    at::Tensor table;
    StepConfig config;
    config.max_norm = max_norm;
    on_one_rank(config, [&](Step& step, Stages& stages) {
      for (const int64_t rows : {1, 4, 2}) step.run(std::vector<Batch>{batch_of(rows)}, 0.1, 0.0);
      table = stages[0]->owned()[0].tensor.detach().clone();
    });
    return table;
  };
  const at::Tensor free = after(std::nullopt);
  EXPECT_TRUE(at::equal(free, after(1e30)));
  EXPECT_FALSE(at::equal(free, after(0.1)));
}

TEST(Step, NamesABatchWithoutLabelsAndAModelWithoutLoss) {
  on_one_rank({}, [](Step& step, Stages&) {
    Batch batch = batch_of(1);
    batch.labels = at::Tensor();
    EXPECT_THAT(tests::thrown_by([&] { step.run(std::vector<Batch>{batch}, 0.1, 0.0); }),
                ::testing::HasSubstr("a batch without labels has no loss"));
  });
  on_one_rank(silent, {}, [](Step& step, Stages&) {
    EXPECT_THAT(tests::thrown_by([&] { step.run(std::vector<Batch>{batch_of(1)}, 0.1, 0.0); }),
                ::testing::HasSubstr("the last unit returned no loss"));
  });
}

}  // namespace
}  // namespace heddle

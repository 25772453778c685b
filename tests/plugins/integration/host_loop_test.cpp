// A host's own loop (examples/embed/loop.h) trains like Step, and Step with a host's optimizer like Step with
// its own.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <gmock/gmock.h>

#include <limits>

#include "examples/embed/loop.h"
#include "plugins/pipelines.h"
#include "plugins/toy_training.h"
#include "plugins/training_data.h"

namespace heddle::tests {
namespace {

constexpr double kRate = 0.05, kMaxNorm = 0.5;
constexpr int kHostSteps = 5;

struct HostRun {
  std::vector<double> losses, norms;
  std::map<std::string, at::Tensor> shards;  // of rank 0
};

// Plain gradient descent on the owned shards.
void descend(Stages& stages) {
  const at::NoGradGuard no_gradients;
  for (Shard* shard : stages.shards()) {
    if (shard->tensor.grad().defined()) shard->tensor.sub_(shard->tensor.grad() * kRate);
    shard->tensor.mutable_grad().reset();
  }
}

class Descent : public IOptimizer {
 public:
  explicit Descent(Stages& stages) : stages_(stages) {}
  void update(const OptimizerUpdate& by) override {
    const double lr = by.lr;
    EXPECT_EQ(lr, kRate);
    const at::NoGradGuard no_gradients;
    for (Shard* shard : stages_.shards())
      if (shard->tensor.grad().defined()) shard->tensor.sub_(shard->tensor.grad() * lr);
  }

 private:
  Stages& stages_;
};

void keep_shards(Stages& stages, HostRun& out) {
  for (const Shard* shard : stages.shards()) out.shards.emplace(shard->name, shard->tensor.detach().clone());
}

HostRun by_host(const Training& run) {
  HostRun out;
  on_ranks(run, [&](Stages& stages, const DeviceMesh& mesh) {
    embed::Loop loop(stages, mesh, kMaxNorm);
    HostRun mine;
    for (int at = 0; at < kHostSteps; ++at) {
      const embed::Report report = loop.step(deal(run, at, mesh), [&] { descend(stages); });
      mine.losses.push_back(report.loss);
      mine.norms.push_back(report.norm);
    }
    keep_shards(stages, mine);
    if (mesh.rank("world") == 0) out = std::move(mine);
  });
  return out;
}

HostRun by_step(const Training& run) {
  HostRun out;
  on_ranks(run, [&](Stages& stages, const DeviceMesh& mesh) {
    StepConfig config;
    config.max_norm = kMaxNorm;
    Descent descent(stages);
    Step step(stages, mesh, config, descent);
    EXPECT_TRUE(step.optimizer_state().empty());
    HostRun mine;
    for (int at = 0; at < kHostSteps; ++at) {
      const StepReport report = step.run(deal(run, at, mesh), kRate, 0);
      mine.losses.push_back(report.loss.item<double>());
      mine.norms.push_back(report.grad_norm.item<double>());
    }
    for (const Shard* shard : stages.shards()) EXPECT_FALSE(shard->tensor.grad().defined());
    keep_shards(stages, mine);
    if (mesh.rank("world") == 0) out = std::move(mine);
  });
  return out;
}

void expect_near(const HostRun& got, const HostRun& want, bool shards) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (size_t at = 0; at < want.losses.size(); ++at) {
    EXPECT_NEAR(got.losses[at], want.losses[at], 2e-5 * want.losses[at]) << "step " << at;
    EXPECT_NEAR(got.norms[at], want.norms[at], 2e-4 * want.norms[at]) << "step " << at;
  }
  if (shards) {
    ASSERT_EQ(got.shards.size(), want.shards.size());
  }
  for (const auto& [name, tensor] : want.shards) {
    const at::Tensor& own = got.shards.at(name);
    if (!shards && own.sizes() != tensor.sizes()) continue;  // norms are whole on every rank of tp
    EXPECT_LT((own - tensor).abs().max().item<double>(), 1e-6) << name;
  }
}

Training small(const std::string& model = "qwen3") {
  Training run = four_heads(model);
  run.microbatches = 2;
  return run;
}

TEST(HostLoop, TrainsLikeStepUnderEveryParallelizer) {
  const HostRun alone = by_step(small());
  for (const std::string& line : alternatives("[single|single tp2|single tp2(sequence)|ddp dp2 "
                                              "tp2(sequence)|fsdp2 dp2 tp2(sequence)|fsdp2 cp2(ring)]")) {
    SCOPED_TRACE(line);
    const Training run = on(small(), line + " calls2");
    const HostRun host = by_host(run), step = by_step(run);
    expect_near(host, step, true);
    expect_near(host, alone, false);
  }
}

// One shard on two ranks becomes inf: no other value changes, and the next step has no old gradients.
TEST(HostLoop, SkipsAnUpdateThatIsNotFinite) {
  const Training run = on(small(), "ddp dp2 calls2");
  on_ranks(run, [&](Stages& stages, const DeviceMesh& mesh) {
    embed::Loop loop(stages, mesh, kMaxNorm);
    EXPECT_FALSE(loop.step(deal(run, 0, mesh), [&] { descend(stages); }).skipped());
    {
      const at::NoGradGuard no_gradients;
      stages.shards().front()->tensor.fill_(std::numeric_limits<double>::infinity());
    }
    HostRun before, after;
    keep_shards(stages, before);
    bool updated = false;
    EXPECT_TRUE(loop.step(deal(run, 1, mesh), [&] { updated = true; }).skipped());
    EXPECT_FALSE(updated);
    keep_shards(stages, after);
    for (const auto& [name, tensor] : before.shards) EXPECT_TRUE(after.shards.at(name).equal(tensor)) << name;
    for (const Shard* shard : stages.shards()) EXPECT_FALSE(shard->tensor.grad().defined()) << shard->name;
  });
}

TEST(HostLoop, ChangesNothingWithoutLabels) {
  const Training run = small();
  on_ranks(run, [&](Stages& stages, const DeviceMesh& mesh) {
    embed::Loop loop(stages, mesh, kMaxNorm);
    HostRun before, after;
    keep_shards(stages, before);
    std::vector<Batch> batches = deal(run, 0, mesh);
    for (Batch& batch : batches) batch.labels = at::full_like(batch.labels, Batch::kIgnore);
    const embed::Report report = loop.step(std::move(batches), [&] { descend(stages); });
    EXPECT_EQ(report.loss, 0);
    EXPECT_EQ(report.norm, 0);
    keep_shards(stages, after);
    for (const auto& [name, tensor] : before.shards) EXPECT_TRUE(after.shards.at(name).equal(tensor)) << name;
  });
}

TEST(HostLoop, IsRefusedOnAPipeline) {
  Training run = pipeline("1f1b", 2, 3);
  on_ranks(run, [&](Stages& stages, const DeviceMesh& mesh) {
    const std::string said = error_of([&] { stages.front()->forward({}, deal(run, 0, mesh)[0]); });
    EXPECT_EQ(
        said,
        "error[input] ParallelStage::forward: this is one of the 2 stages of a pipeline: its inputs come "
        "from another rank, by the schedule\n  hint: let heddle::Step run the schedule (with an optimizer "
        "of your own, if you have one), or set pp_size: 1");
    Descent descent(stages);
    Step step(stages, mesh, {}, descent);  // runs the schedule
    EXPECT_GT(step.run(deal(run, 0, mesh), kRate, 0).loss.item<double>(), 1.0);
  });
}

TEST(HostLoop, RefusesAnOptimizerThatCannotRollBack) {
  Training run = pipeline("1f1b", 2, 3);
  run.pipeline.post_validation = true;
  run.pipeline.where = "distributed.pipeline";
  on_ranks(run, [&](Stages& stages, const DeviceMesh& mesh) {
    Descent descent(stages);
    EXPECT_EQ(
        error_of([&] { Step(stages, mesh, {}, descent); }),
        "error[config] distributed.pipeline.pp_post_validation: post-validation takes updates back, and a "
        "host's optimizer cannot\n  hint: set pp_post_validation: false, or let Step update with its "
        "AdamW");
  });
}

}  // namespace
}  // namespace heddle::tests

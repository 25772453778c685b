// The execution of a strategy compared with `single`: a small model on some ranks must train equally.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heddle/engine/engine.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/weight_gradients.h"
#include "heddle/testing/conformance.h"
#include "heddle/train/step.h"
#include "heddle/transport/threads.h"

namespace heddle::kits {
namespace detail {

// Prime sizes, so that uneven shards occur.
inline constexpr int64_t kVocabulary = 13, kWidth = 7, kSequence = 5, kRows = 12;

// tanh(x W^T + b) + x with kind `middle`; the first unit is the embedding, the last one returns the loss. A
// unit may use the weight of another one.
class SmallUnit : public Unit {
 public:
  enum class Kind { first, middle, last };
  SmallUnit(std::string name, Kind kind, const std::string& weight_of = "")
      : name_(std::move(name)),
        weight_name_((weight_of.empty() ? name_ : weight_of) + ".weight"),
        kind_(kind) {
    const auto meta = at::TensorOptions().device(at::kMeta).dtype(at::kFloat);
    weight_ = at::empty({kind == Kind::middle ? kWidth : kVocabulary, kWidth}, meta).set_requires_grad(true);
    bias_ = at::empty({kWidth}, meta).set_requires_grad(true);
  }
  std::string_view name() const override { return name_; }
  Module* module() override { return nullptr; }
  std::vector<ParameterSlot> parameters() override {
    std::vector<ParameterSlot> out = {{weight_name_, &weight_, {Init::Kind::normal, 0.5}, false}};
    if (kind_ == Kind::middle) out.push_back({name_ + ".bias", &bias_, {Init::Kind::zeros, 0}, false});
    return out;
  }
  Tensors forward(Tensors inputs, const Batch& batch) override {
    if (kind_ == Kind::first) return {at::embedding(weight_, batch.tokens)};
    if (kind_ == Kind::middle)
      return {inputs[0] + at::tanh(model::linear(inputs[0], weight_, bias_, batch.weight_gradients))};
    const at::Tensor logits = at::linear(inputs[0], weight_);
    return {at::cross_entropy_loss(logits.flatten(0, 1), batch.labels.flatten(), {}, /*Reduction::Sum*/ 2,
                                   Batch::kIgnore)};
  }

 private:
  std::string name_, weight_name_;
  Kind kind_;
  at::Tensor weight_, bias_;
};

inline Units small_units() {
  Units units;
  units.push_back(std::make_unique<SmallUnit>("first", SmallUnit::Kind::first));
  for (const char* name : {"middle.0", "middle.1"})
    units.push_back(std::make_unique<SmallUnit>(name, SmallUnit::Kind::middle));
  units.push_back(std::make_unique<SmallUnit>("middle.2", SmallUnit::Kind::middle, "middle.0"));
  units.push_back(std::make_unique<SmallUnit>("last", SmallUnit::Kind::last));
  return units;
}

// The rows of one rank at one step, as microbatches of one row.
inline std::vector<Batch> small_batches(int64_t step, int64_t rank, int64_t ranks) {
  std::vector<Batch> out;
  for (int64_t row = rank * kRows / ranks; row < (rank + 1) * kRows / ranks; ++row) {
    const at::Tensor sequence =
        ((at::arange(kSequence + 1) * (3 + row % 2) + row * 5 + step).remainder(kVocabulary))
            .to(at::kLong)
            .unsqueeze(0);
    Batch batch;
    batch.tokens = sequence.narrow(1, 0, kSequence).contiguous();
    batch.labels = sequence.narrow(1, 1, kSequence).contiguous();
    batch.step = step;
    out.push_back(std::move(batch));
  }
  return out;
}

struct Curve {
  std::vector<double> losses, norms;
};

inline Curve small_run(const Node& configuration, PluginRegistry& plugins, int ranks, int64_t steps) {
  Curve curve;
  ThreadWorld::run(ranks, [&](Rendezvous& rendezvous) {
    engine::Model model = engine::model(configuration, plugins,
                                        {rendezvous, [](const Setup&) { return small_units(); }, {}, 42, ""});
    StepConfig config;
    config.optimizer.lr = 0.02;
    Step step(model.stages, model.mesh, config);
    for (int64_t at = 0; at < steps; ++at) {
      const std::vector<Batch> mine = small_batches(at, model.mesh.rank("dp"), model.mesh.size("dp"));
      const StepReport report = step.run(mine, config.optimizer.lr, config.optimizer.weight_decay);
      if (rendezvous.rank() != 0) continue;
      curve.losses.push_back(report.loss.item<double>());
      curve.norms.push_back(report.grad_norm.item<double>());
    }
  });
  return curve;
}

// Runs the split backwards of a step: the input gradients of every microbatch before any weight gradient.
// Returns this rank's loss.
inline double split_step(ParallelStage& stage, std::span<const Batch> microbatches, double scale) {
  const StageInterfaces hints(stage);
  std::deque<WeightGradients> queues(microbatches.size());
  std::vector<at::Tensor> losses;
  double sum = 0;
  for (size_t i = 0; i < microbatches.size(); ++i) {
    Batch batch = microbatches[i];
    batch.weight_gradients = &queues[i];
    losses.push_back(stage.forward({}, batch)[0]);
    sum += losses.back().item<double>();
  }
  for (size_t i = 0; i < losses.size(); ++i) {
    queues[i].defer();
    torch::autograd::backward({losses[i] * scale}, {});
  }
  for (size_t i = 0; i < queues.size(); ++i) {
    if (i + 1 == queues.size()) hints.expect_last_backward();
    queues[i].drain();
  }
  hints.reduce_gradients();
  stage.finish_gradients();
  return sum;
}

// Plain gradient descent with such backwards; the loss of each step, over all ranks.
inline std::vector<double> split_run(const Node& configuration, PluginRegistry& plugins, int ranks,
                                     int64_t steps) {
  std::vector<double> losses(static_cast<size_t>(steps));
  std::mutex adding;
  ThreadWorld::run(ranks, [&](Rendezvous& rendezvous) {
    engine::Model model = engine::model(configuration, plugins,
                                        {rendezvous, [](const Setup&) { return small_units(); }, {}, 42, ""});
    ParallelStage& stage = *model.stages.front();
    for (int64_t at = 0; at < steps; ++at) {
      const double mine = split_step(stage, small_batches(at, model.mesh.rank("dp"), model.mesh.size("dp")),
                                     1.0 / (kRows * kSequence));
      {
        const at::NoGradGuard no_gradients;
        for (const Shard& shard : stage.owned())
          if (shard.tensor.grad().defined()) shard.tensor.sub_(shard.tensor.grad(), 0.5);
        for (const Shard& shard : stage.owned()) shard.tensor.mutable_grad() = at::Tensor();
      }
      stage.parameters_changed();
      const std::lock_guard lock(adding);
      losses[static_cast<size_t>(at)] += mine;
    }
  });
  return losses;
}

inline double largest_difference(const std::vector<double>& one, const std::vector<double>& two) {
  double out = 0;
  for (size_t i = 0; i < one.size(); ++i) out = std::max(out, std::abs(one[i] - two[i]) / std::abs(two[i]));
  return out;
}

}  // namespace detail

// Trains a small model for twelve steps under the given `distributed:` section (YAML), on `ranks` threads,
// and under `single`: losses agree to 2e-5 relative, gradient norms to 2e-4. `plugins` has the strategy.
inline Check equals_single(const std::string& distributed, PluginRegistry& plugins, int ranks) {
  Check check{"{" + distributed + "} on " + std::to_string(ranks) + " ranks trains as single does", false,
              ""};
  try {
    const auto run = [&](const std::string& section, int count) {
      return detail::small_run(
          config::read_text("distributed: {" + section + "}\ndist_env: {backend: gloo}", "testing"), plugins,
          count, 12);
    };
    const detail::Curve one = run("strategy: single", 1), many = run(distributed, ranks);
    const double loss = detail::largest_difference(many.losses, one.losses);
    const double norm = detail::largest_difference(many.norms, one.norms);
    check.passed = loss <= 2e-5 && norm <= 2e-4;
    check.detail = "loss differs by " + std::to_string(loss) + ", gradient norm by " + std::to_string(norm);
  } catch (const Error& error) {
    check.detail = error.what();
  }
  return check;
}

// The same model when a schedule splits its backwards (Batch::weight_gradients): losses of a dozen steps
// agree with those of `single` to 2e-5 relative. Several microbatches are in flight, so each rank has two or
// more.
inline Check equals_single_when_split(const std::string& distributed, PluginRegistry& plugins, int ranks) {
  Check check{"{" + distributed + "} on " + std::to_string(ranks) +
                  " ranks trains as single does when backwards are split",
              false, ""};
  try {
    const auto run = [&](const std::string& section, int count) {
      return detail::split_run(config::read_text("distributed: {" + section + "}", "testing"), plugins, count,
                               12);
    };
    const double loss = detail::largest_difference(run(distributed, ranks), run("strategy: single", 1));
    check.passed = loss <= 2e-5;
    check.detail = "loss differs by " + std::to_string(loss);
  } catch (const Error& error) {
    check.detail = error.what();
  }
  return check;
}

// The same model under `activation_checkpointing: full`, against `single` without it. `distributed` must not
// have the key.
inline Check equals_single_when_recomputed(const std::string& distributed, PluginRegistry& plugins,
                                           int ranks) {
  return equals_single(distributed + ", activation_checkpointing: full", plugins, ranks);
}

}  // namespace heddle::kits

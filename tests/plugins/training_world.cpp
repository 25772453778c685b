// The data of the test world, its ranks, and the gathering of what they computed.
#include "plugins/training_world.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "heddle/train/step.h"
#include "plugins/by_hand.h"
#include "plugins/recording.h"
#include "plugins/training_data.h"

namespace heddle::tests {
namespace {

void copy_box(const Shard& shard, const at::Tensor& box, at::Tensor whole) {
  const at::NoGradGuard no_gradients;
  for (size_t dim = 0; dim < shard.shape.size(); ++dim)
    whole = whole.narrow(static_cast<int64_t>(dim), shard.offset[dim],
                         shard.tensor.size(static_cast<int64_t>(dim)));
  whole.copy_(box);
}

void freeze(Units& units, const std::vector<std::string>& names) {
  for (auto& unit : units)
    for (ParameterSlot& slot : unit->parameters())
      if (std::find(names.begin(), names.end(), slot.name) != names.end())
        slot.tensor->set_requires_grad(false);
}

std::mutex gathering;

// Writes this rank's box of a tensor into the whole one.
void collect(const Shard& shard, const at::Tensor& box, std::map<std::string, at::Tensor>& out) {
  const std::lock_guard lock(gathering);
  at::Tensor& whole = out[shard.name];
  const at::Tensor here = box.to(at::kCPU);
  if (!whole.defined())
    whole =
        at::full(shard.shape, here.is_floating_point() ? 1e30 : -1.0, here.options().requires_grad(false));
  copy_box(shard, here, whole);
}

void add_sides(const SideValues& given, std::map<std::string, std::vector<double>>& out) {
  if (!given.layout) return;
  for (const SideLayout::Entry& entry : given.layout->entries()) {
    const at::Tensor value = given.find(entry.spec.name).to(at::kCPU).contiguous();
    const double* first = value.const_data_ptr<double>();
    auto& all = out[entry.spec.name];
    all.insert(all.end(), first, first + value.numel());
  }
}

// Equal bits, but under strategies with flat buffers beside tp: there a parameter that all ranks of tp hold
// may lie at another alignment on each, and LibTorch's products round by it.
void expect_same_norms(const Training& run, const std::vector<double>& first,
                       const std::vector<double>& these, int rank) {
  if (!run.strategy.starts_with("megatron")) {
    EXPECT_EQ(first, these) << "rank " << rank;
    return;
  }
  ASSERT_EQ(first.size(), these.size());
  for (size_t step = 0; step < first.size(); ++step)
    EXPECT_NEAR(first[step], these[step], 1e-10 * std::abs(first[step]))
        << "rank " << rank << " step " << step;
}

// The reports of a rank's steps; the values of one may come with the next step.
struct Reports {
  Outcome seen;
  std::optional<StepReport> last;

  void read() {
    if (!last) return;
    const StepReport report = *std::exchange(last, std::nullopt);
    seen.losses.push_back(report.loss.item<double>());
    seen.norms.push_back(report.skipped() ? -1 : report.grad_norm.item<double>());
    add_sides(report.side_values, seen.sides);
  }
  void add(StepReport report, bool known) {
    read();
    last = std::move(report);
    if (known) read();
  }
};

void collect_state(Step& step, Stages& stages, Outcome& out) {
  for (const auto& stage : stages)
    for (const Shard& shard : stage->owned()) collect(shard, shard.tensor, out.parameters);
  for (const OptimizerState& state : step.optimizer_state()) {
    if (!state.has("exp_avg")) continue;
    collect(*state.shard, state.at("exp_avg"), out.averages);
    collect(*state.shard, state.at("exp_avg_sq"), out.squares);
  }
}

// Every rank knows the same numbers.
void merge(const Training& run, const Outcome& seen, int rank, int peak, Outcome& out) {
  const std::lock_guard lock(gathering);
  out.peaks.resize(std::max<size_t>(out.peaks.size(), rank + 1));
  out.peaks[rank] = peak;
  if (out.losses.empty()) {
    out.losses = seen.losses, out.norms = seen.norms, out.validation = seen.validation;
    out.sides = seen.sides;
    return;
  }
  ASSERT_EQ(out.losses.size(), seen.losses.size()) << "rank " << rank;
  for (size_t i = 0; i < seen.losses.size(); ++i)
    EXPECT_TRUE(out.losses[i] == seen.losses[i] || (std::isnan(out.losses[i]) && std::isnan(seen.losses[i])))
        << "rank " << rank << ", step " << i;
  expect_same_norms(run, out.norms, seen.norms, rank);
  EXPECT_EQ(out.validation, seen.validation) << "rank " << rank;
  EXPECT_EQ(out.sides, seen.sides) << "rank " << rank;
}

void run_rank(const Training& run, Stages& stages, const DeviceMesh& mesh, Outcome& out) {
  StepConfig config;
  config.optimizer.lr = 1e-2;
  config.optimizer.weight_decay = 0.1;
  config.max_norm = run.max_norm;
  const auto optimizer = run.make_optimizer ? run.make_optimizer() : train::make_adamw(config.optimizer);
  Step step(stages, mesh, config, *optimizer);
  Reports reports;
  for (int at = 0; at < run.steps; ++at) {
    const std::vector<Batch> mine = deal(run, at, mesh);
    StepReport report = step.run(mine, config.optimizer.lr, config.optimizer.weight_decay);
    reports.add(std::move(report), !step.unsettled());
    if (at % 3 == 2) reports.seen.validation.push_back(step.evaluate(mine).loss.item<double>());
  }
  step.settle();
  reports.read();
  collect_state(step, stages, out);
  merge(run, reports.seen, mesh.rank("world"), step.peak_alive(), out);
}

double difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;  // not finite: the loss of a skipped update
  return std::abs(a - b) / std::max(std::abs(b), 1e-30);
}

}  // namespace

ModelConfig odd_llama() {
  ModelConfig model;
  model.vocab_size = 53;
  model.hidden_size = 14;
  model.intermediate_size = 23;
  model.num_hidden_layers = 3;
  model.num_attention_heads = 3;
  model.num_key_value_heads = 1;
  model.head_dim = 6;
  model.qkv_bias = true;
  return model;
}

std::unique_ptr<IStrategy> make_strategy(const std::string& name, const std::string& section) {
  return make_offered<OfferedStrategy>("strategy", name, section);
}

std::unique_ptr<IParallelizer> make_parallelizer(const std::string& name, const std::string& section) {
  return make_offered<OfferedParallelizer>("parallelizer", name, section);
}

Stages build(const Training& run, const DeviceMesh& mesh) {
  const auto meta = at::TensorOptions().dtype(at::kFloat).device(at::kMeta);
  Units units = run.make_units ? run.make_units(mesh.rank("world")) : make_units(run.model, meta);
  freeze(units, run.frozen);
  Plan plan;
  plan.activation_checkpointing = run.checkpointing;
  plan.strategy = run.make_strategy ? run.make_strategy() : make_strategy(run.strategy, run.section);
  for (const auto& [name, section] : run.parallelizers)
    plan.parallelizers.push_back(make_parallelizer(name, section));
  for (const auto& make : run.own_parallelizers) plan.parallelizers.push_back(make());
  if (run.make_schedule) plan.schedule = run.make_schedule();
  plan.pipeline = run.pipeline;
  Stages stages = parallel::build(std::move(units), plan, mesh, run.values, 7);
  if (run.events != nullptr)  // the check of the shards is no part of a step
    std::erase_if((*run.events)[mesh.rank("world")],
                  [](const std::string& event) { return event.rfind("all_reduce ", 0) == 0; });
  return stages;
}

void on_ranks(const Training& run, const std::function<void(Stages&, const DeviceMesh&)>& body,
              const Log& log) {
  const std::vector<Axis> axes = run.axes.empty() ? std::vector<Axis>{{"dp", 1}} : run.axes;
  int size = 1;
  for (const Axis& axis : axes) size *= axis.size;
  if (run.events != nullptr) run.events->assign(size, {});
  ThreadWorld world(size, std::chrono::minutes(2), log);
  run_strictly(world, run.on_device, [&](Rendezvous& host) {
    RecordingRendezvous recording(host, run.events == nullptr ? nullptr : &(*run.events)[host.rank()]);
    const DeviceMesh mesh = mesh::build(axes, recording, "test: world", run.views, run.table);
    Stages stages = build(run, mesh);
    body(stages, mesh);
  });
}

Outcome train(const Training& run) {
  Outcome out;
  const Log log([&](LogLevel level, std::string_view, std::string_view text) {
    const std::lock_guard lock(gathering);
    if (level == LogLevel::warning) out.warnings.emplace_back(text);
  });
  on_ranks(
      run, [&](Stages& stages, const DeviceMesh& mesh) { run_rank(run, stages, mesh, out); }, log);
  return out;
}

std::map<std::string, at::Tensor> gradients(const Training& run) {
  std::map<std::string, at::Tensor> out;
  on_ranks(run, [&](Stages& stages, const DeviceMesh& mesh) {
    const auto step = [&](int index) {
      const std::vector<Batch> mine = deal(run, index, mesh);
      std::string order = run.order;
      for (size_t i = 0; run.order.empty() && i < mine.size(); ++i)
        order += "F" + std::to_string(i) + " B" + std::to_string(i) + (i + 1 < mine.size() ? " " : "");
      run_by_hand(*stages.front(), mine, order);
      stages.front()->finish_gradients();
    };
    step(0);
    if (!run.order.empty()) {
      for (const Shard& shard : stages.front()->owned()) shard.tensor.mutable_grad().reset();
      stages.front()->parameters_changed();
      step(1);
    }
    for (const Shard& shard : stages.front()->owned())
      if (shard.tensor.grad().defined()) collect(shard, shard.tensor.grad(), out);
  });
  return out;
}

void expect_close(const Outcome& got, const Outcome& want) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  ASSERT_LT(want.losses.back(), want.losses.front());  // it learns, so the numbers mean something
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_LT(difference(got.losses[i], want.losses[i]), 2e-5) << "loss of step " << i;
    EXPECT_LT(difference(got.norms[i], want.norms[i]), 2e-4) << "norm of step " << i;
  }
  ASSERT_EQ(got.validation.size(), want.validation.size());
  for (size_t i = 0; i < want.validation.size(); ++i)
    EXPECT_LT(difference(got.validation[i], want.validation[i]), 2e-5) << "validation " << i;
  ASSERT_EQ(got.sides.size(), want.sides.size());
  for (const auto& [name, values] : want.sides) {
    ASSERT_EQ(got.sides.at(name).size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_LT(difference(got.sides.at(name)[i], values[i]), 2e-4) << name << " " << i;
  }
  ASSERT_EQ(got.parameters.size(), want.parameters.size());
  // AdamW moves an element whose gradient is close to zero by up to the rate, whatever rounding left of it:
  // few elements may be farther apart than the others.
  for (const auto& [name, tensor] : want.parameters) {
    const at::Tensor apart = (got.parameters.at(name) - tensor).abs();
    const int64_t beyond = apart.gt(2e-5 + 1e-3 * tensor.abs()).sum().item<int64_t>();
    EXPECT_LE(beyond, std::max<int64_t>(3, tensor.numel() / 100)) << name;
    EXPECT_LT(apart.max().item<double>(), 2e-4 + 1e-3 * tensor.abs().max().item<double>()) << name;
  }
}

void expect_bit_equal(const Outcome& got, const Outcome& want) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (size_t i = 0; i < want.losses.size(); ++i)
    EXPECT_EQ(difference(got.losses[i], want.losses[i]), 0) << i;
  EXPECT_EQ(got.norms, want.norms);
  EXPECT_EQ(got.validation, want.validation);
  for (const auto& [name, tensor] : want.parameters)
    EXPECT_TRUE(at::equal(got.parameters.at(name), tensor)) << name;
  for (const auto& [name, tensor] : want.averages)
    EXPECT_TRUE(at::equal(got.averages.at(name), tensor)) << name;
  for (const auto& [name, tensor] : want.squares)
    EXPECT_TRUE(at::equal(got.squares.at(name), tensor)) << name;
}

}  // namespace heddle::tests

// The stages of a training, and its ranks.
#include "plugins/training_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "plugins/by_hand.h"
#include "plugins/recording.h"
#include "plugins/training_data.h"

namespace heddle::tests {
namespace {

void freeze(Units& units, const std::vector<std::string>& names) {
  for (auto& unit : units)
    for (ParameterSlot& slot : unit->parameters())
      if (std::find(names.begin(), names.end(), slot.name) != names.end())
        slot.tensor->set_requires_grad(false);
}

// In flat buffers, a parameter that all ranks of tp hold may have a different alignment on each rank, and
// LibTorch's products round accordingly.
double norm_between_ranks(const Training& run) {
  return run.strategy.starts_with("megatron") ? 1e-10 : 0;
}

void run_rank(const Training& run, Stages& stages, const DeviceMesh& mesh, kits::Results& results) {
  kits::StepLoop loop;
  loop.steps = run.steps;
  loop.config.optimizer.lr = 1e-2;
  loop.config.optimizer.weight_decay = 0.1;
  loop.config.max_norm = run.max_norm;
  loop.make_optimizer = run.make_optimizer;
  loop.batches = [&](int64_t step) { return deal(run, static_cast<int>(step), mesh); };
  loop.validate_every = 3;
  loop.norm_between_ranks = norm_between_ranks(run);
  kits::run_steps(stages, mesh, loop, results);
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
  if (run.events != nullptr)  // the check of the shards is not part of a step
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
  kits::Results results;
  std::vector<std::string> warnings;
  const Log log([&](LogLevel level, std::string_view, std::string_view text) {
    const std::lock_guard lock(results.mutex);
    if (level == LogLevel::warning) warnings.emplace_back(text);
  });
  on_ranks(
      run, [&](Stages& stages, const DeviceMesh& mesh) { run_rank(run, stages, mesh, results); }, log);
  return {results.take(), std::move(warnings)};
}

std::map<std::string, at::Tensor> gradients(const Training& run) {
  kits::WholeTensors gathered;
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
      stages.front()->parameters_changed(ParametersChange::updated);
      step(1);
    }
    for (const Shard& shard : stages.front()->owned())
      if (shard.tensor.grad().defined()) gathered.add(mesh, shard, shard.tensor.grad());
  });
  return gathered.take("the gradient of");
}

void expect_close(const Outcome& got, const Outcome& want) {
  ASSERT_LT(want.losses.back(), want.losses.front());  // it learns, so the comparison is meaningful
  EXPECT_EQ(kits::differences(got, want), "");
}

void expect_bit_equal(const Outcome& got, const Outcome& want) {
  EXPECT_EQ(kits::bit_differences(got, want), "");
}

}  // namespace heddle::tests

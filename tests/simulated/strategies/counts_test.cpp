// Host synchronizations and kernel launches of a step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>

#include "heddle/train/step.h"
#include "plugins/training_data.h"
#include "simulated/trainings.h"

namespace heddle::tests {
namespace {

using simulated::Machine;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using WaitCounts = std::map<std::string, int64_t>;

const std::string kWait = "synchronisation by ";

// Totals over all ranks: host synchronizations by cause, and launches, also by kernel name.
struct Asked {
  WaitCounts waits, names;
  int64_t launches = 0;
};

Asked since(const WaitCounts& before, const simulated::Counts& counts) {
  Asked out;
  out.launches = Machine::get().counts().launches - counts.launches;
  for (const auto& [name, count] : Machine::get().launches_by_name()) {
    const auto found = before.find(name);
    const int64_t more = count - (found == before.end() ? 0 : found->second);
    if (more == 0) continue;
    if (name.starts_with(kWait))
      out.waits[name.substr(kWait.size())] = more;
    else
      out.names[name] = more;
  }
  return out;
}

// Counts of the third training step, of reading its report on every rank, and of a validation.
struct StepAsked {
  Asked step, reading, validation;
};

StepAsked third_step(const Training& run) {
  const std::vector<Axis> axes = run.axes.empty() ? std::vector<Axis>{{"dp", 1}} : run.axes;
  int size = 1;
  for (const Axis& axis : axes) size *= axis.size;
  Machine::get().begin(simulated::Policy::late);
  std::barrier together(size);
  StepAsked all;
  ThreadWorld world(size, std::chrono::minutes(2), Log());
  run_strictly(world, on_gpus(run).on_device, [&](Rendezvous& rendezvous) {
    const DeviceMesh mesh = mesh::build(axes, rendezvous, "test: world", run.views, run.table);
    Stages stages = build(run, mesh);
    const auto adamw = train::make_adamw({});
    StepConfig config;
    config.max_norm = 1.0;
    Step step(stages, mesh, config, *adamw);
    const auto counted = [&](Asked& into, const std::function<void()>& body) {
      together.arrive_and_wait();
      const WaitCounts names = Machine::get().launches_by_name();
      const simulated::Counts counts = Machine::get().counts();
      together.arrive_and_wait();
      body();
      together.arrive_and_wait();
      if (mesh.rank("world") == 0) into = since(names, counts);
    };
    StepReport report;
    for (int at = 0; at < 3; ++at) {
      const std::vector<Batch> mine = deal(run, at, mesh);
      counted(all.step, [&] { report = step.run(mine, 1e-2, 0.1); });
    }
    counted(all.reading, [&] {
      EXPECT_FALSE(report.skipped());
      EXPECT_GT(report.loss.item<double>() * report.grad_norm.item<double>(), 0);
    });
    counted(all.validation, [&] { step.evaluate(deal(run, 3, mesh)); });
  });
  return all;
}

Training in_microbatches(Training run, int count) {
  run.microbatches = count;
  return run;
}

// The report reads three values: the skip flag, the loss and the norm.
TEST(SimulatedCounts, WaitOnlyForTheReportInADenseStep) {
  for (const int microbatches : {2, 4}) {
    const StepAsked of = third_step(in_microbatches(small(), microbatches));
    EXPECT_THAT(of.step.waits, IsEmpty());
    EXPECT_THAT(of.reading.waits, ElementsAre(Pair("item()", 3)));
  }
  for (const char* line : {"ddp dp2 calls2", "fsdp2 dp2 calls2", "single tp2(sequence)"}) {
    SCOPED_TRACE(line);
    EXPECT_THAT(third_step(on(small(), line)).step.waits, IsEmpty());
  }
}

// Document offsets are in host memory. Tensors derived from them are copied from pinned memory.
TEST(SimulatedCounts, WaitForNothingWithDocuments) {
  Training run = small();
  run.change_batch = pack;
  EXPECT_THAT(third_step(run).step.waits, IsEmpty());
  run.model.sliding_window = 3;
  run.model.slides = {true, false};
  EXPECT_THAT(third_step(run).step.waits, IsEmpty());
  for (const std::string& line : alternatives("fsdp2 cp2([allgather|ring])")) {
    SCOPED_TRACE(line);
    EXPECT_THAT(third_step(on(run, line)).step.waits, IsEmpty());
  }
}

TEST(SimulatedCounts, WaitForNothingInMixersUnderContextParallelism) {
  Training run = mixing(kMixing[0]);
  run.change_batch = pack;
  EXPECT_THAT(third_step(on(run, "fsdp2 cp2(allgather)")).step.waits, IsEmpty());
}

TEST(SimulatedCounts, WaitOncePerLayerAndMicrobatchWithExperts) {
  for (const int microbatches : {2, 4})
    EXPECT_THAT(third_step(in_microbatches(eight_experts(), microbatches)).step.waits,
                ElementsAre(Pair("a copy to the host", 2 * microbatches)));  // row count of each expert
}

// Two ranks, two layers, two microbatches.
TEST(SimulatedCounts, WaitOncePerLayerAndMicrobatchWithExpertParallelism) {
  for (const std::string& line : alternatives("fsdp2 dp2 ep2([alltoall|allgather])")) {
    SCOPED_TRACE(line);
    EXPECT_THAT(third_step(on(eight_experts(), line)).step.waits,
                ElementsAre(Pair("a copy to the host", 2 * 2 * 2)));
  }
}

// Returns a model whose widths the attention kernel supports without padding.
Training of_even_widths(int layers, int microbatches) {
  Training run = in_microbatches(small(), microbatches);
  run.model.hidden_size = 32, run.model.head_dim = 8, run.model.num_key_value_heads = 2;
  run.model.intermediate_size = 48, run.model.num_hidden_layers = layers;
  return run;
}

// Returns a bfloat16 run on one rank with one microbatch, so that no gradient is accumulated.
Training narrow(int layers) {
  Training run = of_even_widths(layers, 1);
  run.make_units = [model = run.model](int) {
    return make_units(model, at::TensorOptions().device(at::kMeta).dtype(at::kBFloat16));
  };
  return run;
}

// Excludes norm launches: a GPU needs one launch in total, the simulated GPU one per parameter.
int64_t without_norms(const Asked& asked) {
  const auto norms = asked.names.find("aten::linalg_vector_norm");
  return asked.launches - (norms == asked.names.end() ? 0 : norms->second);
}

std::string names_of(const Asked& asked) {
  std::string out;
  for (const auto& [name, count] : asked.names) out += "\n  " + name + " " + std::to_string(count);
  return out;
}

// A Llama layer: two norms, four products, RoPE, attention, the gated activation, two residuals.
TEST(SimulatedCounts, BoundTheLaunchesOfALayer) {
  const StepAsked two = third_step(narrow(2)), four = third_step(narrow(4));
  const int64_t forward = four.validation.launches - two.validation.launches;
  const int64_t backward = without_norms(four.step) - without_norms(two.step) - forward;
  EXPECT_LE(forward, 2 * 16) << names_of(four.validation);
  EXPECT_LE(backward, 2 * 30) << names_of(four.step);
  RecordProperty("forward", std::to_string(static_cast<double>(forward) / 2));
  RecordProperty("backward", std::to_string(static_cast<double>(backward) / 2));
}

// Counts the launches beyond those of the collectives and of the same layer on one rank.
TEST(SimulatedCounts, BoundTheLaunchesOfAnFsdp2Unit) {
  std::string names;
  const auto launches = [&](int ranks, int layers) {
    Training run = ranks == 1 ? narrow(layers) : of_even_widths(layers, 1);
    if (ranks > 1) run = on(run, "fsdp2(" + kBfloat16 + ") dp" + std::to_string(ranks));
    const Asked asked = third_step(run).step;
    int64_t count = without_norms(asked);
    for (const auto& [name, of_name] : asked.names)
      if (name.find(" on ") != std::string::npos) count -= of_name;
    if (ranks > 1 && layers == 4) names = names_of(asked);
    return count / ranks;
  };
  const int64_t more = launches(2, 4) - launches(2, 2) - (launches(1, 4) - launches(1, 2));
  EXPECT_LE(more, 2 * 4) << names;
  RecordProperty("launches", std::to_string(static_cast<double>(more) / 2));
}

}  // namespace
}  // namespace heddle::tests

// What a step asks of a GPU: waits of the host, and launches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>

#include "heddle/train/step.h"
#include "plugins/context/over_cp.h"
#include "plugins/moe/runs.h"
#include "plugins/training_data.h"
#include "simulated_cuda/trainings.h"

namespace heddle::tests {
namespace {

using simulated::Machine;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using WaitCounts = std::map<std::string, int64_t>;

const std::string kWait = "synchronisation by ";

// Of all ranks together: waits of the host by cause, and launches.
struct Asked {
  WaitCounts waits;
  int64_t launches = 0;
};

Asked since(const WaitCounts& before, const simulated::Counts& counts) {
  Asked out;
  out.launches = Machine::get().counts().launches - counts.launches;
  for (const auto& [name, count] : Machine::get().launches_by_name()) {
    if (!name.starts_with(kWait)) continue;
    const auto found = before.find(name);
    const int64_t more = count - (found == before.end() ? 0 : found->second);
    if (more > 0) out.waits[name.substr(kWait.size())] = more;
  }
  return out;
}

// The third step of a training, and the reading of its report on every rank.
struct StepAsked {
  Asked step, reading;
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
  });
  return all;
}

Training in_microbatches(Training run, int count) {
  run.microbatches = count;
  return run;
}

// What is read: whether the update was skipped, the loss and the norm.
TEST(SimulatedCounts, ADenseStepWaitsForNothingButTheReadingOfItsReport) {
  for (const int microbatches : {2, 4}) {
    const StepAsked of = third_step(in_microbatches(small(), microbatches));
    EXPECT_THAT(of.step.waits, IsEmpty());
    EXPECT_THAT(of.reading.waits, ElementsAre(Pair("item()", 3)));
  }
  for (const Training& run : {under("ddp", "{}", {{"dp", 2}}), sharded(2), over_tp(small(), 2, kSequence)}) {
    SCOPED_TRACE(run.strategy);
    EXPECT_THAT(third_step(run).step.waits, IsEmpty());
  }
}

// Offsets of documents are in host memory, and what is made of them there travels from pinned memory.
TEST(SimulatedCounts, AStepWithDocumentsWaitsForNothing) {
  Training run = small();
  run.change_batch = pack;
  EXPECT_THAT(third_step(run).step.waits, IsEmpty());
  run.model.sliding_window = 3;
  run.model.slides = {true, false};
  EXPECT_THAT(third_step(run).step.waits, IsEmpty());
  for (const char* method : {"allgather", "ring"}) {
    SCOPED_TRACE(method);
    EXPECT_THAT(third_step(over_cp(run, mesh_of(1, 1, 2), method)).step.waits, IsEmpty());
  }
}

TEST(SimulatedCounts, AStepWithExpertsWaitsOnceALayerAndMicrobatch) {
  for (const int microbatches : {2, 4})
    EXPECT_THAT(third_step(in_microbatches(eight_experts(), microbatches)).step.waits,
                ElementsAre(Pair("a copy to the host", 2 * microbatches)));  // rows of each expert
}

// Two ranks with two layers and two microbatches each.
TEST(SimulatedCounts, AStepWithExpertParallelismWaitsOnceALayerAndMicrobatch) {
  for (const char* dispatcher : {"alltoall", "allgather"}) {
    SCOPED_TRACE(dispatcher);
    EXPECT_THAT(third_step(over_ep(eight_experts(), {2}, 2, way(dispatcher))).step.waits,
                ElementsAre(Pair("a copy to the host", 2 * 2 * 2)));
  }
}

// Forward and backward, attention as products and every operator a launch.
TEST(SimulatedCounts, ADenseLayerLaunchesNoMoreThanItDid) {
  const auto launches = [](int layers, int microbatches) {
    Training run = in_microbatches(small(), microbatches);
    run.model.num_hidden_layers = layers;
    return third_step(run).step.launches;
  };
  const int64_t of_four = launches(4, 4) - launches(2, 4) - (launches(4, 2) - launches(2, 2));
  EXPECT_LE(of_four, 4 * 162);
}

}  // namespace
}  // namespace heddle::tests

// Training over the groups of plugins/nccl, on simulated GPUs and a fake NCCL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cuda/device_rendezvous.h"
#include "environment.h"
#include "heddle/train/step.h"
#include "simulated/nccl/fake_nccl.h"
#include "simulated/trainings.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("NcclGroups.TrainThroughTheHostAsTheCpu");

using simulated::FakeNccl;

Training by_nccl(Training run) {
  run.on_device = [](Rendezvous& host) -> std::unique_ptr<Rendezvous> {
    simulated::set_current_device(host.rank());
    simulated::offer_device_ops();
    return std::make_unique<nccl::DeviceRendezvous>(host, host.rank());
  };
  return run;
}

const std::string kEachAlone = "[ddp dp2 calls2|fsdp2 dp3 calls2|single tp2(sequence)]";

// Runs each line on a fresh fake NCCL.
void expect_equal_by_nccl(const Training& run, const std::string& lines) {
  for (const std::string& line : alternatives(lines)) {
    FakeNccl::begin();
    expect_equal_on_gpus(run, {line}, by_nccl);
  }
}

// Collectives through host memory, as used by ranks that share a GPU.
TEST(NcclGroups, TrainThroughTheHostAsTheCpu) {
  for (const char* sharing : {"1", "late"}) {
    SCOPED_TRACE(sharing);
    setenv("HEDDLE_SHARED_GPU", sharing, /*overwrite=*/1);
    expect_equal_on_gpus(small(), {kEachAlone, "fsdp2 cp2(ring)"}, by_nccl);
  }
  unsetenv("HEDDLE_SHARED_GPU");
}

TEST(NcclGroups, TrainAsTheCpu) {
  expect_equal_by_nccl(small(), kEachAlone);
  expect_equal_by_nccl(small(5), "single pp2([1f1b|zbvzerobubble]) rows2");
  Training tied = small(5);
  tied.model.tie_word_embeddings = true;
  expect_equal_by_nccl(tied, "[single|fsdp2 dp2|megatron dp2] pp2(1f1b) rows2");
  expect_equal_by_nccl(small(), "fsdp2 cp2([allgather|ring|ulysses|ring_ulysses])");
  expect_equal_by_nccl(eight_experts(), "fsdp2 dp2 ep2(alltoall)");
}

// The fake NCCL refuses large calls with parts not aligned to 16 bytes.
TEST(NcclGroups, SendPartsOfEveryStrategyThatAreAligned) {
  for (const std::string& line :
       alternatives("[fsdp2 dp4|fsdp2(" + kBfloat16 + ") dp3|megatron_fsdp dp3|megatron dp2|ddp dp3]")) {
    SCOPED_TRACE(line);
    Training even = small();  // rows of 128 bytes: model widths are multiples of 16
    even.model.hidden_size = 32, even.model.head_dim = 8, even.model.intermediate_size = 48;
    FakeNccl::begin();
    FakeNccl::set_large(1024);
    simulated::Machine::get().begin(simulated::Policy::at_once);
    EXPECT_EQ(train(by_nccl(on(even, line))).losses.size(), 3U);
  }
}

// Hardware limits could deadlock ranks that start kernels in different orders.
TEST(NcclGroups, TrainOnHardwareOfFewQueuesAndCtas) {
  nccl::set_environment();
  Training tied = small(5);
  tied.model.tie_word_embeddings = true;
  for (const auto& [run, line] : {std::pair{small(), "fsdp2 dp2 calls2"},
                                  {small(), "single tp2(sequence)"},
                                  {small(), "fsdp2 cp2(ring)"},
                                  {small(5), "single pp2(1f1b) rows2"},
                                  {small(5), "single pp2(zbvzerobubble) rows2"},
                                  {tied, "fsdp2 dp2 pp2(1f1b) rows2"},
                                  {eight_experts(), "fsdp2 dp2 ep2(alltoall)"}}) {
    SCOPED_TRACE(line);
    const Training on_line = on(run, line);
    const Outcome want = train(on_line);
    for (const uint64_t seed : {1, 2}) {
      FakeNccl::begin();
      simulated::Machine::get().begin(simulated::Policy::random, seed);
      FakeNccl::start_driver();
      expect_close(train(by_nccl(on_line)), want);
    }
  }
  simulated::Machine::get().begin(simulated::Policy::at_once);
  for (const auto& [name, value] : nccl::kSettings) unsetenv(name);
}

// Communicators before the first step and after the last step of a training.
struct Made {
  std::map<int, std::vector<int>> before, after;  // by device
};

Made made_by(const Training& run, int size) {
  FakeNccl::begin();
  simulated::Machine::get().begin(simulated::Policy::at_once);
  Made made;
  ThreadWorld world(size, std::chrono::minutes(1), Log());
  run_strictly(world, by_nccl(run).on_device, [&](Rendezvous& rendezvous) {
    const DeviceMesh mesh = mesh::build(run.axes, rendezvous, "test: world", run.views, run.table);
    Stages stages = build(run, mesh);
    const auto adamw = train::make_adamw({});
    StepConfig config;
    config.max_norm = 1.0;
    Step step(stages, mesh, config, *adamw);
    rendezvous.barrier("before");
    if (rendezvous.rank() == 0) made.before = FakeNccl::joined();
    rendezvous.barrier("steps");
    for (int at = 0; at < 2; ++at) step.run(deal(run, at, mesh), 1e-2, 0.1);
    rendezvous.barrier("after");
    if (rendezvous.rank() == 0) made.after = FakeNccl::joined();
    simulated::Machine::get().synchronize_device(rendezvous.rank(), "the end");
    rendezvous.barrier("end");
  });
  return made;
}

// Returns the communicators that both devices joined, in the order of the first device.
std::vector<int> common(const std::vector<int>& one, const std::vector<int>& other) {
  std::vector<int> out;
  std::copy_if(one.begin(), one.end(), std::back_inserter(out),
               [&](int number) { return std::ranges::find(other, number) != other.end(); });
  return out;
}

void expect_one_order(const std::map<int, std::vector<int>>& joined) {
  for (const auto& [one, of_one] : joined)
    for (const auto& [other, of_other] : joined)
      EXPECT_EQ(common(of_one, of_other), common(of_other, of_one)) << one << " and " << other;
}

TEST(NcclGroups, AreMadeBeforeTheFirstStepInOneOrder) {
  for (const auto& [run, size] : {std::pair{on(small(), "fsdp2 cp4(ring)"), 4},
                                  {on(small(8), "single pp4(interleaved1f1b) rows2"), 4},
                                  {on(small(5), "single pp2(zbvzerobubble) rows2"), 2},
                                  {on(small(), "fsdp2 dp3 calls2"), 3}}) {
    SCOPED_TRACE(size);
    const Made made = made_by(run, size);
    EXPECT_EQ(made.before, made.after);
    EXPECT_EQ(made.before.size(), static_cast<size_t>(size));
    expect_one_order(made.before);
    for (const auto& [device, numbers] : made.before) EXPECT_LE(numbers.size(), 8U) << device;
  }
}

// World, dp and views of dp share a communicator. fsdp2 needs two, to gather and reduce concurrently.
TEST(NcclGroups, ShareACommunicatorForEqualRanks) {
  for (const auto& [line, count] : {std::pair{"ddp dp2 calls2", 1U}, {"fsdp2 dp2 calls2", 2U}}) {
    const Made made = made_by(on(small(), line), 2);
    EXPECT_EQ(made.after.size(), 2U);
    for (const auto& [device, numbers] : made.after) EXPECT_EQ(numbers.size(), count) << line;
  }
}

}  // namespace
}  // namespace heddle::tests

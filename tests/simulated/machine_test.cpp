// The simulated GPU: stream order, race detection, memory, and host synchronization.
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "heddle/base/error.h"
#include "lib/simulated/current.h"

namespace heddle::tests {
namespace {

using simulated::Machine;
using simulated::Policy;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const at::TensorOptions kOnGpu = at::TensorOptions(at::kFloat).device(at::kCUDA, 0);

c10::Event event_here() {
  c10::Event event(at::kCUDA);
  event.record(simulated::current_stream(0));
  return event;
}

TEST(SimulatedMachine, RunsWorkAsLateAsItMayAndCountsIt) {
  Machine& machine = Machine::get();
  machine.begin(Policy::late);
  const at::Tensor sum = at::mm(at::ones({2, 3}, kOnGpu), at::ones({3, 2}, kOnGpu));
  EXPECT_TRUE(sum.is_cuda());
  EXPECT_FALSE(machine.passed(machine.record(simulated::current_index(0))));
  EXPECT_EQ(machine.counts().synchronisations, 0);
  EXPECT_EQ(machine.counts().launches, 3);
  EXPECT_EQ(sum.sum().item<float>(), 12);
  EXPECT_EQ(machine.counts().synchronisations, 1);
  EXPECT_EQ(machine.counts().launches, 5);
}

TEST(SimulatedMachine, NamesAReadThatNoEventOrders) {
  for (const bool waits : {true, false}) {
    Machine::get().begin(Policy::late);
    const at::Tensor x = at::zeros({4}, kOnGpu);
    x.fill_(2);
    c10::Event filled = event_here();
    {
      const c10::StreamGuard other(simulated::stream_of_pool(0));
      if (waits) filled.block(simulated::current_stream(0));
      const at::Tensor y = x.mul(3);
      c10::Event multiplied = event_here();
      multiplied.block(c10::Stream(c10::Stream::DEFAULT, x.device()));
      EXPECT_EQ(y.sum().item<float>() == 24, waits);  // otherwise the kernel read poisoned memory
    }
    if (waits)
      EXPECT_THAT(Machine::get().reports(), IsEmpty());
    else
      EXPECT_THAT(
          Machine::get().reports(),
          ElementsAre(AllOf(HasSubstr("race: aten::mul"), HasSubstr("reads what aten::fill_ on stream 0"))));
  }
}

TEST(SimulatedMachine, NamesAWriteThatIsNotBehindARead) {
  Machine::get().begin(Policy::at_once);  // at_once gives correct values, but the race exists
  const at::Tensor x = at::ones({4}, kOnGpu);
  c10::Event filled = event_here();
  at::Tensor y;
  {
    const c10::StreamGuard other(simulated::stream_of_pool(0));
    filled.block(simulated::current_stream(0));
    y = x.mul(3);
  }
  x.fill_(7);
  EXPECT_THAT(Machine::get().reports(),
              ElementsAre(AllOf(HasSubstr("aten::fill_ on stream 0 of cuda:0 writes what aten::mul"))));
}

TEST(SimulatedMachine, NamesABlockThatIsFreedBeforeItsLastUse) {
  Machine::get().begin(Policy::at_once);
  at::Tensor x = at::ones({4}, kOnGpu), y;
  c10::Event filled = event_here();
  {
    const c10::StreamGuard other(simulated::stream_of_pool(0));
    filled.block(simulated::current_stream(0));
    y = x.mul(3);
  }
  x.reset();
  EXPECT_THAT(Machine::get().reports(),
              ElementsAre(AllOf(HasSubstr("the free of a block of 16 bytes"), HasSubstr("what aten::mul"))));
}

TEST(SimulatedMachine, FreesABlockBehindTheStreamsThatWereRecorded) {
  for (const Policy policy : {Policy::at_once, Policy::late}) {
    Machine::get().begin(policy);
    at::Tensor x = at::ones({4}, kOnGpu), y;
    c10::Event filled = event_here();
    const c10::Stream side = simulated::stream_of_pool(0);
    {
      const c10::StreamGuard other(side);
      filled.block(simulated::current_stream(0));
      y = x.mul(3);
    }
    x.record_stream(side);
    x.reset();
    EXPECT_THAT(Machine::get().reports(), IsEmpty());
    const at::Tensor again = at::zeros({4}, kOnGpu);  // reuses the freed block
    const c10::StreamGuard other(side);
    EXPECT_EQ(y.sum().item<float>(), 12);
  }
}

TEST(SimulatedMachine, ReusesABlockAtOnceAndPoisoned) {
  Machine::get().begin(Policy::late);
  at::Tensor x = at::ones({4}, kOnGpu);
  const void* at_first = x.storage().data();
  x.reset();
  x = at::empty({4}, kOnGpu);
  EXPECT_EQ(x.storage().data(), at_first);
  EXPECT_TRUE(x.isnan().all().item<bool>());
  EXPECT_THAT(Machine::get().reports(), IsEmpty());
}

// A copy to pinned memory completes when its stream runs it. Until then the memory is poisoned.
TEST(SimulatedMachine, PoisonsPinnedMemoryUntilItsCopyHasRun) {
  Machine::get().begin(Policy::late);
  const at::Tensor x = at::ones({4}, kOnGpu);
  at::Tensor host = at::zeros({4}, at::TensorOptions(at::kFloat).pinned_memory(true));
  host.copy_(x, /*non_blocking=*/true);
  EXPECT_TRUE(host.isnan().all().item<bool>());
  Machine::get().synchronize_device(0, "the test");
  EXPECT_EQ(host.sum().item<float>(), 4);
}

// Only one of two ranks posted the collective. The next run starts without it.
TEST(SimulatedMachine, ReleasesWhoWaitsForARankThatFailed) {
  Machine& machine = Machine::get();
  machine.begin(Policy::late);
  const auto meeting = std::make_shared<simulated::Meeting>();
  meeting->expected = 2;
  machine.launch(simulated::current_index(0), {"all_reduce on dp", {}, {}, meeting}, {});
  machine.abandon("no memory");
  try {
    machine.synchronize_device(0, "the test");
    FAIL() << "the wait did not throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::rank_lost);
    EXPECT_EQ(error.message(), "the test waits for a rank that failed: no memory");
  }
  machine.begin(Policy::late);
  EXPECT_EQ(at::ones({4}, kOnGpu).sum().item<float>(), 4);
}

// Device 1 needs the second collective before the first. Device 0 has work between them that waits for the
// first. Streams 1 and 9 share one of 8 queues.
std::string wait_across_queues(int queues) {
  Machine& machine = Machine::get();
  machine.begin(Policy::late);
  machine.set_patience(std::chrono::milliseconds(300));
  machine.set_hardware({.queues = queues, .ctas = 132, .in_launch_order = true});
  const auto collective = [](const char* name, const std::shared_ptr<simulated::Meeting>& meeting) {
    return simulated::Task{.name = name, .run = {}, .after = {}, .meeting = meeting, .ctas = 32};
  };
  const auto first = std::make_shared<simulated::Meeting>(), second = std::make_shared<simulated::Meeting>();
  for (const auto& meeting : {first, second}) {
    meeting->expected = 2;
    meeting->run = [] {};
  }
  const auto stream = [&](int device, int64_t id) { return machine.stream(device, id); };
  machine.launch(stream(0, 2), collective("first", first), {});
  machine.wait(stream(0, 1), machine.record(stream(0, 2)));
  machine.launch(stream(0, 9), collective("second", second), {});
  machine.launch(stream(1, 9), collective("second", second), {});
  machine.wait(stream(1, 2), machine.record(stream(1, 9)));
  machine.launch(stream(1, 2), collective("first", first), {});
  std::string message;
  try {
    machine.synchronize_device(0, "the test");
  } catch (const Error& error) {
    message = error.message();
  }
  machine.give_up(*first);
  machine.give_up(*second);
  machine.begin(Policy::late);
  machine.set_patience(std::chrono::minutes(1));
  return message;
}

TEST(SimulatedMachine, HoldsWorkBehindWhatSharesItsQueue) {
  EXPECT_THAT(wait_across_queues(8), HasSubstr("the test waits for work that cannot run"));
  EXPECT_EQ(wait_across_queues(32), "");
}

TEST(SimulatedMachineDeathTest, EndsAProcessThatReadsADeviceAddress) {
  GTEST_FLAG_SET(death_test_style, "fast");
  Machine::get().begin(Policy::at_once);
  const at::Tensor x = at::ones({4}, kOnGpu);
  EXPECT_EXIT(
      std::printf("%f", static_cast<double>(*x.const_data_ptr<float>())), ::testing::ExitedWithCode(134),
      "host code read or wrote a device address of a block of 16 bytes, which aten::fill_ on stream 0 of "
      "cuda:0 writes; the host was at:");
}

}  // namespace
}  // namespace heddle::tests

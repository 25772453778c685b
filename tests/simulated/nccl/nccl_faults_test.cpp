// Groups and watchdog of plugins/nccl with late and lost ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/ones.h>

#include <cstdlib>
#include <mutex>
#include <thread>

#include "cuda/device_rendezvous.h"
#include "environment.h"
#include "heddle/transport/threads.h"
#include "lib/simulated/current.h"
#include "simulated/nccl/fake_nccl.h"

namespace heddle::tests {
namespace {

using simulated::FakeNccl;
using simulated::Machine;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

void begin() {
  Machine::get().begin(simulated::Policy::at_once);
  FakeNccl::begin();
}

at::Tensor ones_of(int rank) {
  return at::ones({4}, at::TensorOptions(at::kFloat).device(at::kCUDA, static_cast<c10::DeviceIndex>(rank)));
}

// Runs two ranks with the group dp and returns the error of rank 0. Rank 0 runs `body`, rank 1 runs
// `other`.
using RankBody = std::function<void(Communicator&)>;
std::string error_of(std::chrono::milliseconds timeout, const RankBody& body, const RankBody& other) {
  std::string message;
  ThreadWorld world(2, timeout, Log());
  world.run([&](Rendezvous& host) {
    simulated::set_current_device(host.rank());
    nccl::DeviceRendezvous device(host, host.rank());
    const auto group = device.group("dp", std::vector<int>{0, 1});
    if (host.rank() == 1) return other(*group);
    try {
      body(*group);
    } catch (const Error& error) {
      message = error.message();
    }
  });
  return message;
}

void wait_until(const std::function<bool()>& what) {
  for (int tries = 0; tries < 2000 && !what(); ++tries) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(what());
}

// Posts collectives until one throws.
void post_on(Communicator& group, int rank) {
  for (int call = 0; call < 2000; ++call) {
    group.all_reduce(ones_of(rank))->wait();
    std::this_thread::sleep_for(1ms);
  }
}

TEST(NcclFaults, NameTheCollectiveWhenARankPostsNothing) {
  begin();
  const auto idle = [](Communicator&) { wait_until([] { return FakeNccl::aborted() > 0; }); };
  EXPECT_THAT(error_of(
                  300ms, [](Communicator& group) { post_on(group, 0); }, idle),
              HasSubstr("all_reduce on dp"));
  EXPECT_EQ(FakeNccl::aborted(), 2);
}

// A first call connects to the other ranks, and blocks in NCCL if one of them is lost.
TEST(NcclFaults, FreeAHostStuckInNcclByTheWatchdog) {
  begin();
  const auto idle = [](Communicator&) { wait_until([] { return FakeNccl::aborted() > 0; }); };
  const auto body = [](Communicator& group) {
    FakeNccl::hold_calls(true);
    post_on(group, 0);
  };
  EXPECT_THAT(error_of(300ms, body, idle), HasSubstr("all_reduce on dp"));
  EXPECT_FALSE(FakeNccl::is_held());
  EXPECT_EQ(FakeNccl::freed_in_use(), 0);
}

// The call still uses its communicator for a while after the abort.
TEST(NcclFaults, FreeACommunicatorWhenTheHostHasLeftItsCall) {
  begin();
  FakeNccl::linger(900ms);
  const auto idle = [](Communicator&) { wait_until([] { return FakeNccl::aborted() > 0; }); };
  const auto body = [](Communicator& group) { post_on(group, 0); };  // connects to an idle rank
  EXPECT_THAT(error_of(300ms, body, idle), HasSubstr("all_reduce on dp"));
  EXPECT_EQ(FakeNccl::freed_in_use(), 0);
  EXPECT_EQ(FakeNccl::aborted(), 2);
}

TEST(NcclFaults, RefuseALargeCallOfMisalignedParts) {
  begin();
  FakeNccl::set_large(1024);
  ThreadWorld world(2, 1min, Log());
  std::vector<std::string> messages;
  world.run([&](Rendezvous& host) {
    simulated::set_current_device(host.rank());
    nccl::DeviceRendezvous device(host, host.rank());
    const auto group = device.group("dp", std::vector<int>{0, 1});
    const at::Tensor buffer = at::ones(
        {4096}, at::TensorOptions(at::kFloat).device(at::kCUDA, static_cast<c10::DeviceIndex>(host.rank())));
    group->reduce_scatter(buffer.narrow(0, 2048, 1024), buffer.narrow(0, 0, 2048))->wait();
    group->reduce_scatter(buffer.narrow(0, 2048, 3), buffer.narrow(0, 0, 6))->wait();  // small call
    for (const auto& [first, part] : {std::pair{1, 1024}, {0, 1023}}) {
      try {
        group->reduce_scatter(buffer.narrow(0, 2100, part), buffer.narrow(0, first, 2 * part))->wait();
        ADD_FAILURE() << "taken";
      } catch (const Error& error) {
        if (host.rank() == 0) messages.push_back(error.message());
      }
    }
  });
  EXPECT_THAT(messages, ::testing::Each(HasSubstr("parts of a large call do not begin at multiples of 16")));
  EXPECT_EQ(messages.size(), 2U);
}

TEST(NcclEnvironment, IsFilledInAndKeepsWhatIsSet) {
  for (const auto& [name, value] : nccl::kSettings) unsetenv(name);
  nccl::set_environment();
  for (const auto& [name, value] : nccl::kSettings) {
    EXPECT_STREQ(std::getenv(name), value);
    unsetenv(name);
  }
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
  setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64", 1);
  nccl::set_environment();
  EXPECT_STREQ(std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "1");
  EXPECT_STREQ(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "1");
  EXPECT_EQ(std::getenv("PYTORCH_ALLOC_CONF"), nullptr);
  unsetenv("PYTORCH_CUDA_ALLOC_CONF");
  for (const auto& [name, value] : nccl::kSettings) unsetenv(name);
}

// Runs eight communicators concurrently, each with kernels of 32 CTAs, on devices that have 132 CTAs and
// start kernels in different orders.
std::string many_at_once() {
  begin();
  Machine::get().begin(simulated::Policy::late);
  Machine::get().set_patience(500ms);
  FakeNccl::start_driver();
  std::string message;
  std::mutex mutex;
  ThreadWorld world(2, 1min, Log());
  world.run([&](Rendezvous& host) {
    simulated::set_current_device(host.rank());
    nccl::DeviceRendezvous device(host, host.rank());
    std::vector<std::unique_ptr<Communicator>> groups;
    for (int made = 0; made < 8; ++made) groups.push_back(device.group("dp", std::vector<int>{0, 1}));
    std::vector<at::Tensor> sums;
    for (size_t i = 0; i < groups.size(); ++i) sums.push_back(ones_of(host.rank()));
    Machine::get().synchronize_device(host.rank(), "the first values");
    std::vector<std::unique_ptr<Work>> works;
    for (size_t i = 0; i < sums.size(); ++i) works.push_back(groups[i]->all_reduce(sums[i]));
    host.barrier("posted");
    for (const auto& work : works) work->wait();
    try {
      Machine::get().synchronize_device(host.rank(), "the test");
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      message = error.message();
    }
    host.barrier("done");
  });
  Machine::get().set_patience(1min);
  begin();
  return message;
}

TEST(NcclFaults, KernelsOfManyCommunicatorsStartInOneOrderBecauseTheEnvironmentSaysSo) {
  for (const auto& [name, value] : nccl::kSettings) unsetenv(name);
  EXPECT_THAT(many_at_once(), HasSubstr("waits for work that cannot run"));
  nccl::set_environment();
  EXPECT_EQ(many_at_once(), "");
  for (const auto& [name, value] : nccl::kSettings) unsetenv(name);
}

TEST(NcclFaults, NameTheCollectiveAndTheErrorOfNccl) {
  begin();
  const auto body = [](Communicator& group) {
    FakeNccl::fail_all();
    post_on(group, 0);
  };
  const auto idle = [](Communicator&) { wait_until([] { return FakeNccl::aborted() > 0; }); };
  const std::string message = error_of(1min, body, idle);
  EXPECT_THAT(message, HasSubstr("all_reduce on dp"));
  EXPECT_THAT(message, HasSubstr("remote process exited"));
}

// Late progress is not an error.
TEST(NcclFaults, WaitForALateRank) {
  begin();
  const auto late = [](Communicator& group) {
    std::this_thread::sleep_for(400ms);
    for (int call = 0; call < 3; ++call) group.all_reduce(ones_of(1))->wait();
    Machine::get().synchronize_device(1, "the end");
  };
  const auto body = [](Communicator& group) {
    at::Tensor sum = ones_of(0);
    for (int call = 0; call < 3; ++call) {
      group.all_reduce(sum)->wait();
    }
    EXPECT_EQ(sum[0].item<float>(), 2 + 1 + 1);
  };
  EXPECT_EQ(error_of(1min, body, late), "");
}

nccl::NcclOptions first_of_two(std::chrono::milliseconds timeout) {
  return {.device = 0, .rank = 0, .size = 2, .timeout = timeout};
}

ncclUniqueId fresh_id() {
  ncclUniqueId id;
  nccl::functions().unique_id(&id);
  return id;
}

TEST(NcclFaults, TimeOutWhenARankDoesNotJoin) {
  begin();
  const auto fault = std::make_shared<nccl::Fault>();
  try {
    nccl::NcclCommunicator(fresh_id(), first_of_two(200ms), fault);
    ADD_FAILURE() << "joined alone";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_THAT(error.message(), HasSubstr("rendezvous the other ranks"));
  }
  begin();  // ends the thread that is blocked in NCCL
}

TEST(NcclFaults, StopJoiningWhenARankIsLost) {
  begin();
  const auto fault = std::make_shared<nccl::Fault>();
  std::thread finder([&] {
    std::this_thread::sleep_for(50ms);
    fault->set(Error(ErrorCode::rank_lost, "mesh", "rank 1 was killed"));
  });
  try {
    nccl::NcclCommunicator(fresh_id(), first_of_two(1min), fault);
    ADD_FAILURE() << "joined alone";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::rank_lost);
    EXPECT_THAT(error.message(), HasSubstr("rank 1 was killed"));
  }
  finder.join();
  begin();
}

// A rendezvous that reports a lost rank on request.
class Losing : public AloneRendezvous {
 public:
  void interrupt(const void*, std::function<void()> release) override { release_ = std::move(release); }
  Error verdict(const Broken&) override { return Error(ErrorCode::rank_lost, "mesh", "rank 1 was killed"); }
  void lose() { release_(); }

 private:
  std::function<void()> release_;
};

TEST(NcclFaults, TakeALostRankFromTheHost) {
  begin();
  Losing host;
  nccl::Watchdog watchdog(host, 0);
  host.lose();
  std::this_thread::sleep_for(1s);
  EXPECT_FALSE(watchdog.fault()->is_set());  // leaves time to exit because of the lost rank
  wait_until([&] { return watchdog.fault()->is_set(); });
  wait_until([&] {
    std::this_thread::sleep_for(1ms);
    return watchdog.fault()->is_set();
  });
  try {
    watchdog.fault()->rethrow();
    ADD_FAILURE() << "no fault";
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("rank 1 was killed"));
  }
}

TEST(NcclFaults, RefuseMoreCommunicatorsThanStreams) {
  begin();
  ThreadWorld world(2, 1min, Log());
  std::string message;
  world.run([&](Rendezvous& host) {
    simulated::set_current_device(host.rank());
    nccl::DeviceRendezvous device(host, host.rank());
    std::vector<std::unique_ptr<Communicator>> groups;
    for (int made = 0; made < nccl::kPoolStreams; ++made)
      groups.push_back(device.group("dp", std::vector<int>{0, 1}));
    try {
      groups.push_back(device.group("cp", std::vector<int>{0, 1}));
    } catch (const Error& error) {
      if (host.rank() == 0) message = error.message();
    }
  });
  EXPECT_THAT(message,
              HasSubstr("axis cp: this rank would have 33 NCCL communicators; LibTorch has 32 streams"));
}

}  // namespace
}  // namespace heddle::tests

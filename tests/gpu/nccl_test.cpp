// The CUDA device and the NCCL communicator on real GPUs. scripts/gpu_test runs these tests, ctest does not.
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <numeric>

#include "cuda/group.h"
#include "gpu/gpu_device.h"
#include "heddle/mesh/call.h"
#include "heddle/plugin/registry.h"
#include "heddle/transport/threads.h"
#include "transport/exercise.h"

namespace heddle::tests {

IDevice& device() {
  static const std::unique_ptr<IDevice> started = [] {
    static PluginRegistry plugins(plugin::search_path({}));
    std::unique_ptr<IDevice> made = plugins.device("nccl")->make();
    made->start(0);
    return made;
  }();
  return *started;
}

namespace {

const at::TensorOptions kOnGpu = at::TensorOptions(at::kFloat).device(at::kCUDA);

// A GPU communicator that accepts CPU tensors by copying them to the device and back.
class Carried : public mesh::CheckedCommunicator {
 public:
  Carried(Communicator& inner, c10::Device device)
      : CheckedCommunicator(inner.name(), inner.rank(), inner.size()), inner_(inner), device_(device) {}

 protected:
  std::unique_ptr<Work> post(mesh::Call call) override {
    const at::Tensor in = call.in.defined() ? call.in.to(device_) : at::Tensor();
    const bool in_place = call.in.defined() && call.out.defined() && call.in.is_same(call.out);
    const at::Tensor out = in_place ? in : call.out.defined() ? call.out.to(device_) : at::Tensor();
    repeat(inner_, call, out, in)->wait();
    if (out.defined()) call.out.copy_(out);
    return std::make_unique<mesh::DoneWork>();
  }

 private:
  Communicator& inner_;
  c10::Device device_;
};

// NCCL reduces in another order than the CPU, and reduces 16-bit floats in 16 bits.
void expect_near(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    const bool narrow = outcome.got.scalar_type() == at::kBFloat16 || outcome.got.scalar_type() == at::kHalf;
    const double tolerance = narrow ? 3e-2 : 1e-5;
    EXPECT_TRUE(
        at::allclose(outcome.got.to(at::kDouble), outcome.wanted.to(at::kDouble), tolerance, tolerance))
        << outcome.what;
  }
}

TEST(Device, CountsTheBytesOfItsTensors) {
  const int64_t before = device().memory().current;
  {
    const at::Tensor held = at::ones({1 << 20}, kOnGpu);
    EXPECT_EQ(device().memory().current, before + (4 << 20));
  }
  EXPECT_EQ(device().memory().current, before);
  EXPECT_GE(device().memory().peak, before + (4 << 20));
}

TEST(NcclGroup, PassesTheExerciseOnOneRank) {
  device();
  AloneRendezvous host;
  auto watchdog = std::make_shared<nccl::Watchdog>(host, 0);
  nccl::Group group("dp", 0, {0}, host.group("dp", std::vector<int>{0}), 0, watchdog);
  Carried carried(group, {at::kCUDA, 0});
  expect_near(exercise(carried, Tags::one_order));
}

TEST(NcclGroup, RunsBehindTheComputeThatWasGivenBeforeAndIsWaitedForByTheNext) {
  device();
  AloneRendezvous host;
  auto watchdog = std::make_shared<nccl::Watchdog>(host, 0);
  nccl::Group group("dp", 0, {0}, host.group("dp", std::vector<int>{0}), 0, watchdog);
  const at::Tensor large = at::full({4096, 4096}, 1.0 / 4096, kOnGpu);
  at::Tensor value = at::ones({4096, 4096}, kOnGpu), gathered = at::full({4096, 4096}, -1, kOnGpu);
  for (int i = 0; i < 50; ++i) value = at::mm(value, large);  // keeps the stream busy
  group.all_gather(gathered, value)->wait();
  EXPECT_NEAR(gathered.sum().item<double>(), 4096.0 * 4096.0, 1.0);
}

TEST(NcclCommunicator, ForgetsWhatHasEndedAndThrowsItsFault) {
  device();
  AloneRendezvous host;
  const auto fault = std::make_shared<nccl::Fault>();
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  nccl::NcclCommunicator communicator(id, {0, 0, 1, std::chrono::minutes(1)}, fault);
  at::Tensor tensor = at::ones({16}, kOnGpu);
  const auto done = communicator.post(mesh::Operation::all_reduce, [&](ncclComm_t comm, cudaStream_t stream) {
    ncclAllReduce(tensor.const_data_ptr(), tensor.mutable_data_ptr(), 16, ncclFloat32, ncclSum, comm, stream);
  });
  device().synchronize();
  EXPECT_TRUE(done->passed());
  EXPECT_FALSE(communicator.look().has_value());
  fault->set(Error(ErrorCode::rank_lost, "mesh", "rank 1 was killed"));
  EXPECT_THROW(communicator.post(mesh::Operation::all_reduce, [](ncclComm_t, cudaStream_t) {}), Error);
}

// Uses all GPUs, at most four. With one GPU there is no communication to test.
TEST(NcclGroup, PassesTheExerciseBetweenGpus) {
  device();
  const int ranks = std::min<int>(4, c10::cuda::device_count());
  if (ranks < 2) return void(RecordProperty("ranks", 1));
  ThreadWorld::run(ranks, [&](Rendezvous& host) {
    const int index = host.rank();
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
    auto watchdog = std::make_shared<nccl::Watchdog>(host, index);
    std::vector<int> all(static_cast<size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    nccl::Group group("dp", index, all, host.group("dp", all), index, watchdog);
    // The first call creates the NCCL communicator. Rank 0 contributes no rows to it.
    std::vector<int64_t> rows(static_cast<size_t>(ranks));
    rows[static_cast<size_t>(index)] = index;
    const at::Tensor sent = at::ones({index, 3}, kOnGpu), got = at::full({index, 3}, -1, kOnGpu);
    group.all_to_all(got, sent, rows, rows)->wait();
    Carried carried(group, {at::kCUDA, static_cast<c10::DeviceIndex>(index)});
    std::vector<Outcome> outcomes = exercise(carried, Tags::one_order);
    outcomes.push_back({"all_to_all to oneself", got.to(at::kCPU), sent.to(at::kCPU)});
    static std::mutex one_at_a_time;
    const std::lock_guard lock(one_at_a_time);
    expect_near(outcomes);
  });
}

}  // namespace
}  // namespace heddle::tests

// The device itself: which GPU, its memory, and a rendezvous whose groups move its tensors.
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <cstdlib>

#include "cuda/check.h"
#include "cuda/device_ops.h"
#include "cuda/group.h"
#include "cuda/staged_group.h"
#include "device.h"
#include "heddle/mesh/call.h"

namespace heddle::nccl {
namespace {

// The host's rendezvous, with groups of GPUs.
class DeviceRendezvous : public Rendezvous {
 public:
  DeviceRendezvous(Rendezvous& host, int device)
      : host_(host), device_(device), watchdog_(std::make_shared<Watchdog>(host, device)) {}
  const std::shared_ptr<Fault>& fault() const { return watchdog_->fault(); }
  int rank() const override { return host_.rank(); }
  int world_size() const override { return host_.world_size(); }
  int local_rank() const override { return host_.local_rank(); }
  int local_world_size() const override { return host_.local_world_size(); }
  const Log& log() const override { return host_.log(); }
  c10::Device device() const override { return {at::kCUDA, static_cast<c10::DeviceIndex>(device_)}; }
  std::string hold_rendezvous(const std::string& key, const std::string& text,
                              const Answer& answer) override {
    return host_.hold_rendezvous(key, text, answer);
  }
  std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) override {
    if (ranks.size() == 1) return std::make_unique<AloneCommunicator>(name);
    const auto place = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
    if (shares_gpus())
      return std::make_unique<StagedGroup>(name, place, static_cast<int>(ranks.size()),
                                           host_.group(name, ranks));
    return std::make_unique<Group>(name, place, std::vector<int>(ranks.begin(), ranks.end()),
                                   host_.group(name, ranks), device_, watchdog_);
  }
  void leave() override { host_.leave(); }
  void abandon(const std::string& why) override { host_.abandon(why); }
  std::chrono::milliseconds timeout() const override { return host_.timeout(); }
  Error verdict(const Broken& broken) override { return host_.verdict(broken); }
  void interrupt(const void* owner, std::function<void()> release) override {
    host_.interrupt(owner, std::move(release));
  }
  void forget(const void* owner) override { host_.forget(owner); }

 private:
  Rendezvous& host_;
  const int device_;
  const std::shared_ptr<Watchdog> watchdog_;
};

// If a launcher shows each rank only one GPU, its number is 0.
bool one_gpu_is_shown() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible != nullptr && *visible != 0 && std::string(visible).find(',') == std::string::npos;
}

// Attention and heddle's kernels need it.
void refuse_old_gpu(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "tell its architecture");
  if (properties.major >= 8) return;
  throw Error(ErrorCode::not_built, "nccl",
              std::string(static_cast<const char*>(properties.name)) + " has compute capability " +
                  std::to_string(properties.major) + "." + std::to_string(properties.minor) +
                  "; 8.0 or more (Ampere) is needed",
              "use a newer GPU, or write dist_env.backend: gloo");
}

class CudaDevice : public IDevice {
 public:
  std::string absent() const override { return ""; }

  c10::Device start(int local_rank) override {
    const int gpus = c10::cuda::device_count();
    const int chosen = local_rank < gpus                 ? local_rank
                       : gpus > 0 && shares_gpus()       ? local_rank % gpus
                       : gpus == 1 && one_gpu_is_shown() ? 0
                                                         : -1;
    if (chosen < 0)
      throw Error(ErrorCode::mesh, "nccl",
                  "local rank " + std::to_string(local_rank) + " has no GPU: this machine shows " +
                      std::to_string(gpus),
                  "start at most one rank for each GPU, or write dist_env.backend: gloo");
    if (!at::globalContext().hasCUDA())
      throw Error(ErrorCode::internal, "nccl",
                  "LibTorch was used before the device was started, and has settled on having none",
                  "let nothing compute before the engine starts the device");
    device_ = chosen;
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(chosen));
    at::globalContext().lazyInitDevice(at::kCUDA);
    refuse_old_gpu(chosen);
    offer_device_ops();
    return {at::kCUDA, static_cast<c10::DeviceIndex>(chosen)};
  }

  std::unique_ptr<Rendezvous> wrap(Rendezvous& host) override {
    auto rendezvous = std::make_unique<DeviceRendezvous>(host, device_);
    fault_ = rendezvous->fault();
    return rendezvous;
  }

  DeviceMemory memory() const override {
    const auto stats =
        c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device_));
    const auto& bytes =
        stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
    return {bytes.current, bytes.peak};
  }

  std::string name() const override {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device_), "tell its name");
    return static_cast<const char*>(properties.name);
  }

  // Aborted collectives end as well, with nothing in their tensors.
  void synchronize() override {
    check(cudaDeviceSynchronize(), "finish its work");
    if (fault_) fault_->rethrow();
  }

 private:
  int device_ = 0;
  std::shared_ptr<Fault> fault_;
};

}  // namespace
}  // namespace heddle::nccl

extern "C" HEDDLE_API heddle::IDevice* heddle_nccl_make_cuda_device() {
  return new heddle::nccl::CudaDevice();
}

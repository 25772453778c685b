// The device itself: which GPU, its memory, and a rendezvous whose groups move its tensors.
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <cstdlib>

#include "cuda/check.h"
#include "cuda/device_ops.h"
#include "cuda/device_rendezvous.h"
#include "device.h"

namespace heddle::nccl {
namespace {

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

// The CUDA device: selection of the GPU, its memory, and a rendezvous whose groups exchange its tensors.
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

// Returns whether a launcher made only one GPU visible to each rank. Its index is then 0.
bool one_gpu_is_shown() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible != nullptr && *visible != 0 && std::string(visible).find(',') == std::string::npos;
}

// Refuses GPUs that attention and heddle's kernels do not support.
void refuse_old_gpu(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "get its architecture");
  if (properties.major >= 8) return;
  throw Error(ErrorCode::not_built, "nccl",
              std::string(static_cast<const char*>(properties.name)) + " has compute capability " +
                  std::to_string(properties.major) + "." + std::to_string(properties.minor) +
                  ", but heddle needs at least 8.0 (Ampere)",
              "use a newer GPU, or set dist_env.backend: gloo");
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
                  "local rank " + std::to_string(local_rank) +
                      " has no GPU, because the number of visible GPUs is " + std::to_string(gpus),
                  "start at most one rank per GPU, or set dist_env.backend: gloo");
    if (!at::globalContext().hasCUDA())
      throw Error(ErrorCode::internal, "nccl",
                  "LibTorch was used before the device was started, and found no GPU then",
                  "start the device before any computation");
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
    check(cudaGetDeviceProperties(&properties, device_), "get its name");
    return static_cast<const char*>(properties.name);
  }

  // Aborted collectives end too, and leave their outputs undefined.
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

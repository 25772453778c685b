// Table of functions for a real GPU.
#include "cuda/functions.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

namespace heddle::nccl {
namespace {

int exchange_device(int device) {
  return c10::cuda::ExchangeDevice(static_cast<c10::DeviceIndex>(device));
}

cudaStream_t current_stream(int device) {
  return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).stream();
}

cudaStream_t pool_stream(int device) {
  return c10::cuda::getStreamFromPool(/*isHighPriority=*/true, static_cast<c10::DeviceIndex>(device))
      .stream();
}

cudaError_t event_create(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDisableTiming);
}

cudaError_t event_record(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecord(event, stream);
}

cudaError_t stream_wait(cudaStream_t stream, cudaEvent_t event) {
  return cudaStreamWaitEvent(stream, event, 0);
}

}  // namespace

const Functions& functions() {
  static constexpr Functions kFunctions{
      exchange_device,       current_stream,     pool_stream,       event_create,
      cudaEventDestroy,      event_record,       cudaEventQuery,    stream_wait,
      cudaGetLastError,      cudaGetErrorString, ncclGetUniqueId,   ncclCommInitRank,
      ncclCommGetAsyncError, ncclCommAbort,      ncclCommRevoke,    ncclGroupStart,
      ncclGroupEnd,          ncclAllGather,      ncclReduceScatter, ncclAllReduce,
      ncclBroadcast,         ncclSend,           ncclRecv,          ncclGetErrorString};
  return kFunctions;
}

}  // namespace heddle::nccl

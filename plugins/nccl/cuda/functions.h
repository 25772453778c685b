// The functions that groups call of CUDA's runtime, of LibTorch's streams and of NCCL, as a table: tests link
// another one, which computes on simulated GPUs.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

namespace heddle::nccl {

struct Functions {
  // LibTorch's. exchange_device returns the device that was current. pool_stream: a stream of high priority,
  // another one each time, for kPoolStreams times.
  int (*exchange_device)(int device);
  cudaStream_t (*current_stream)(int device);
  cudaStream_t (*pool_stream)(int device);

  // CUDA's runtime. event_create makes events without times.
  cudaError_t (*event_create)(cudaEvent_t* event);
  cudaError_t (*event_destroy)(cudaEvent_t event);
  cudaError_t (*event_record)(cudaEvent_t event, cudaStream_t stream);
  cudaError_t (*event_query)(cudaEvent_t event);
  cudaError_t (*stream_wait)(cudaStream_t stream, cudaEvent_t event);
  cudaError_t (*last_error)();
  const char* (*cuda_message)(cudaError_t error);

  // NCCL's.
  decltype(&ncclGetUniqueId) unique_id;
  decltype(&ncclCommInitRank) init_rank;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclCommAbort) abort;    // frees the communicator
  decltype(&ncclCommRevoke) revoke;  // ends its calls, and frees nothing
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
  const char* (*nccl_message)(ncclResult_t result);
};

// Streams that LibTorch's pool holds apart for one device and priority.
constexpr int kPoolStreams = 32;

// Defined once in a program: in functions.cpp, or by a test.
const Functions& functions();

// The device is the current one in its scope.
class OnDevice {
 public:
  explicit OnDevice(int device) : before_(functions().exchange_device(device)) {}
  ~OnDevice() { functions().exchange_device(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_;
};

}  // namespace heddle::nccl

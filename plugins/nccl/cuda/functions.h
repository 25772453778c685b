// Table of the functions of the CUDA runtime, LibTorch's streams and NCCL that groups call. Tests link a
// different table, which computes on simulated GPUs.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

namespace heddle::nccl {

struct Functions {
  // LibTorch's functions. exchange_device returns the previous device. pool_stream returns a high-priority
  // stream, a different one in each of kPoolStreams calls.
  int (*exchange_device)(int device);
  cudaStream_t (*current_stream)(int device);
  cudaStream_t (*pool_stream)(int device);

  // Functions of the CUDA runtime. event_create creates events without timing.
  cudaError_t (*event_create)(cudaEvent_t* event);
  cudaError_t (*event_destroy)(cudaEvent_t event);
  cudaError_t (*event_record)(cudaEvent_t event, cudaStream_t stream);
  cudaError_t (*event_query)(cudaEvent_t event);
  cudaError_t (*stream_wait)(cudaStream_t stream, cudaEvent_t event);
  cudaError_t (*last_error)();
  const char* (*cuda_message)(cudaError_t error);

  // Functions of NCCL.
  decltype(&ncclGetUniqueId) unique_id;
  decltype(&ncclCommInitRank) init_rank;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclCommAbort) abort;    // frees the communicator
  decltype(&ncclCommRevoke) revoke;  // ends its calls without freeing it
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

// Number of streams in LibTorch's pool for one device and priority.
constexpr int kPoolStreams = 32;

// Defined once per program, in functions.cpp or by a test.
const Functions& functions();

// Makes the device current in its scope.
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

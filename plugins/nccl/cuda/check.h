// What CUDA and NCCL answer, as errors of ours.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string>

#include "heddle/base/error.h"

namespace heddle::nccl {

// Throws Error{internal} with CUDA's own words. doing: "record an event".
inline void check(cudaError_t result, const std::string& doing) {
  if (result == cudaSuccess) return;
  throw Error(ErrorCode::internal, "nccl", "CUDA could not " + doing + ": " + cudaGetErrorString(result),
              "an earlier kernel may have failed: CUDA_LAUNCH_BLOCKING=1 finds which");
}

}  // namespace heddle::nccl

// Conversion of CUDA errors to heddle::Error.
#pragma once

#include <string>

#include "cuda/functions.h"
#include "heddle/base/error.h"

namespace heddle::nccl {

// Throws Error{internal} with CUDA's message. doing: completes "CUDA could not ...", such as "record an
// event".
inline void check(cudaError_t result, const std::string& doing) {
  if (result == cudaSuccess) return;
  throw Error(ErrorCode::internal, "nccl",
              "CUDA could not " + doing + ": " + functions().cuda_message(result),
              "an earlier kernel may have failed: CUDA_LAUNCH_BLOCKING=1 finds which");
}

}  // namespace heddle::nccl

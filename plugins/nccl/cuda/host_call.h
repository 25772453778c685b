// A checked call of a device's group, made on a group of the CPU.
#pragma once

#include <memory>

#include "heddle/mesh/call.h"

namespace heddle::nccl {

// The call's tensors are on the CPU.
std::unique_ptr<Work> call_on_host(Communicator& host, const mesh::Call& call);

}  // namespace heddle::nccl

// Execution of a device group's checked call on a CPU group.
#pragma once

#include <memory>

#include "heddle/mesh/call.h"

namespace heddle::nccl {

// The tensors of the call are on the CPU.
std::unique_ptr<Work> call_on_host(Communicator& host, const mesh::Call& call);

}  // namespace heddle::nccl

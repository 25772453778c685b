// Dispatch of a call by operation.
#include "cuda/host_call.h"

#include "heddle/base/error.h"

namespace heddle::nccl {

std::unique_ptr<Work> call_on_host(Communicator& host, const mesh::Call& call) {
  switch (call.operation) {
    case mesh::Operation::all_gather:
      return host.all_gather(call.out, call.in);
    case mesh::Operation::reduce_scatter:
      return host.reduce_scatter(call.out, call.in, call.reduce);
    case mesh::Operation::all_reduce:
      return host.all_reduce(call.out, call.reduce);
    case mesh::Operation::all_to_all:
      return host.all_to_all(call.out, call.in, call.out_rows, call.in_rows);
    case mesh::Operation::broadcast:
      return host.broadcast(call.out, call.peer);
    case mesh::Operation::send:
      return host.send(call.in, call.peer, call.tag);
    case mesh::Operation::receive:
      return host.receive(call.out, call.peer, call.tag);
  }
  throw Error(ErrorCode::internal, "nccl", "unknown operation");
}

}  // namespace heddle::nccl

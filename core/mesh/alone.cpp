// The collectives of one rank.
#include "heddle/mesh/call.h"

#include <array>

namespace heddle {

AloneCommunicator::~AloneCommunicator() = default;
AloneRendezvous::~AloneRendezvous() = default;

std::unique_ptr<Work> AloneCommunicator::post(mesh::Call call) {
  // A tensor of a device is copied there, in stream order.
  if (call.out.defined() && !call.out.is_cpu()) {
    if (!call.out.is_same(call.in)) call.out.view(-1).copy_(call.in.view(-1));
    return std::make_unique<mesh::DoneWork>();
  }
  mesh::carry_out(std::array{std::move(call)});
  return std::make_unique<mesh::DoneWork>();
}

std::unique_ptr<Communicator> AloneRendezvous::group(const std::string& name, std::span<const int> ranks) {
  return std::make_unique<AloneCommunicator>(name);
}

}  // namespace heddle

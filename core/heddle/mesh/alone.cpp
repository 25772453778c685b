// The collectives of one rank.
#include "heddle/mesh/alone.h"

#include <array>

namespace heddle {

AloneCommunicator::~AloneCommunicator() = default;
AloneRendezvous::~AloneRendezvous() = default;

std::unique_ptr<Work> AloneCommunicator::post(mesh::Call call) {
  mesh::check_cpu(call, name());
  mesh::carry_out(std::array{std::move(call)});
  return std::make_unique<mesh::DoneWork>();
}

std::unique_ptr<Communicator> AloneRendezvous::group(const std::string& name, std::span<const int> ranks) {
  return std::make_unique<AloneCommunicator>(name);
}

}  // namespace heddle

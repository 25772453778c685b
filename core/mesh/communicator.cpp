// Out-of-line destructors that anchor the vtables of mesh.
#include "heddle/mesh/communicator.h"

#include "heddle/mesh/call.h"
#include "heddle/mesh/device.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle {

Work::~Work() = default;
bool Work::done() const {
  return false;
}
Communicator::~Communicator() = default;
Rendezvous::~Rendezvous() = default;
IDevice::~IDevice() = default;

Error Rendezvous::verdict(const Broken& broken) {
  if (broken.how == Broken::How::timed_out) return mesh::timed_out(broken.waited, broken.elapsed, {});
  return Error(ErrorCode::rank_lost, "mesh", broken.waited + " broke: " + broken.said,
               "see the output of the other ranks");
}

}  // namespace heddle

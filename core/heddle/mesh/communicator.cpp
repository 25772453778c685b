// The homes of the mesh room's vtables.
#include "heddle/mesh/communicator.h"

#include "heddle/mesh/rendezvous.h"

namespace heddle {

Work::~Work() = default;
Communicator::~Communicator() = default;
Rendezvous::~Rendezvous() = default;

}  // namespace heddle

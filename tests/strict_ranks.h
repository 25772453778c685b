// Runs ranks as threads whose communicators are as strict as a device's, or on a real device.
#pragma once

#include <functional>
#include <memory>

#include "heddle/transport/threads.h"
#include "sdk/kits/runs/hostile.h"

namespace heddle::tests {

using OnDevice = std::function<std::unique_ptr<Rendezvous>(Rendezvous&)>;

// on_device: empty for the CPU. Throws errors of ranks, and faults such as the use of a tensor in flight.
inline void run_strictly(ThreadWorld& world, const OnDevice& on_device,
                         const std::function<void(Rendezvous&)>& body) {
  const auto faults = std::make_shared<kits::WorkFaults>();
  world.run([&](Rendezvous& host) {
    if (on_device) return body(*on_device(host));
    kits::LateRendezvous strict(host, faults);
    body(strict);
  });
  faults->check();
}

}  // namespace heddle::tests

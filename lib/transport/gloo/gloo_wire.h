// Gloo as a wire: one ProcessGroupGloo for a group of ranks.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "heddle/base/export.h"
#include "lib/transport/gloo/wire.h"

namespace heddle::mesh {

// The network interface of this process; groups share it.
struct GlooDevice;

// Returns the interface that GLOO_SOCKET_IFNAME names, or "". Throws Error{usage} for one that does not
// exist.
HEDDLE_API std::string interface_of_environment();

// For ranks on several machines: throws Error{usage} if GLOO_SOCKET_IFNAME names the loopback interface.
void refuse_loopback(const std::string& interface);

// interface: listens on it, or on the one that has this numeric address.
HEDDLE_API std::shared_ptr<GlooDevice> open_gloo_device(const std::string& interface,
                                                        const std::string& address);

struct GlooWireOptions {
  std::string name;                     // the prefix of the group's keys in the store
  std::span<const int> ranks;           // global
  int rank = 0;                         // in the group
  std::chrono::milliseconds timeout{};  // of connecting
};

// Connects to the other ranks of the group; they do the same. Throws std::exception.
HEDDLE_API std::unique_ptr<Wire> connect_gloo(c10::intrusive_ptr<c10d::Store> store, const GlooDevice& device,
                                              const GlooWireOptions& options);

}  // namespace heddle::mesh

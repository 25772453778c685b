// The interface of a device: where parameters live if not on the CPU, and how their bytes move.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>

#include "heddle/base/export.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle {

// Memory of this rank's device in bytes, as counted by the allocator of its tensors.
struct DeviceMemory {
  int64_t current = 0, peak = 0;
};

// Default-constructed, and used in this order: absent() before the ranks are forked, then start() and wrap()
// on each rank. It has no streams: strategies order their work by Work::wait(), which makes the device wait
// and not the host, so only a device's own communicators use streams.
class HEDDLE_API IDevice {
 public:
  virtual ~IDevice();

  // Why it is not available here ("there is no NVIDIA driver"); empty: it is available. Must start no thread
  // and no driver, because the launcher forks afterwards.
  virtual std::string absent() const = 0;

  // Selects the device of a local rank, once per process, before its first tensor. Throws Error{mesh}.
  virtual c10::Device start(int local_rank) = 0;

  // A rendezvous whose device() is the one started, and whose groups move its tensors; CPU tensors, texts and
  // everything else go through `host`, which outlives it.
  virtual std::unique_ptr<Rendezvous> wrap(Rendezvous& host) = 0;

  virtual DeviceMemory memory() const = 0;
  // The product's name, such as "NVIDIA H100 80GB HBM3", from start() on; empty: unknown.
  virtual std::string name() const { return ""; }
  virtual void synchronize() = 0;  // returns when all its work is done
};

}  // namespace heddle

// The interface of a device: memory for parameters outside the CPU, and collectives on it.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>

#include "heddle/base/export.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle {

// Memory of this rank's device in bytes, as its tensor allocator counts it.
struct DeviceMemory {
  int64_t current = 0, peak = 0;
};

// A device is default-constructed. absent() is called before the ranks are forked, then start() and wrap() on
// each rank. The interface has no streams: strategies order their work with Work::wait(), which makes the
// device wait and not the host, so only the device's communicators use streams.
class HEDDLE_API IDevice {
 public:
  virtual ~IDevice();

  // Returns the reason why the device is not available ("there is no NVIDIA driver"), or empty if it is. Must
  // not start a thread or initialize a driver, because the launcher forks afterwards.
  virtual std::string absent() const = 0;

  // Selects the device of a local rank. Called once per process, before its first tensor. Throws Error{mesh}.
  virtual c10::Device start(int local_rank) = 0;

  // Returns a rendezvous whose device() is the started device, and whose groups move tensors on it. CPU
  // tensors, texts and all other calls go through `host`, which outlives the result.
  virtual std::unique_ptr<Rendezvous> wrap(Rendezvous& host) = 0;

  virtual DeviceMemory memory() const = 0;
  // Returns the product name, such as "NVIDIA H100 80GB HBM3", or empty if unknown. Valid after start().
  virtual std::string name() const { return ""; }
  virtual void synchronize() = 0;  // waits until all work of the device is done
};

}  // namespace heddle

// The interface of a device: where parameters live when that is not the CPU, and who moves their bytes.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>

#include "heddle/base/export.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle {

// Of this rank's device, in bytes, as the allocator of its tensors counts them.
struct DeviceMemory {
  int64_t current = 0, peak = 0;
};

// Made from nothing, and used in this order: absent() before the ranks are forked, then start() and wrap() on
// each rank. There are no streams in it: strategies order their work by Work::wait(), which makes the device
// wait and not the host, so only a device's own communicators know of streams.
class HEDDLE_API IDevice {
 public:
  virtual ~IDevice();

  // Why nothing can be computed on it here ("there is no NVIDIA driver"); empty: it can. Must leave no thread
  // and no driver behind, as the launcher forks afterwards.
  virtual std::string absent() const = 0;

  // Takes the device of a local rank, once a process, before its first tensor. Throws Error{mesh}.
  virtual c10::Device start(int local_rank) = 0;

  // A meeting whose device() is the one started, and whose groups move its tensors; the CPU's tensors, texts
  // and everything else go through `host`, which outlives it.
  virtual std::unique_ptr<Rendezvous> wrap(Rendezvous& host) = 0;

  virtual DeviceMemory memory() const = 0;
  // The product's name, such as "NVIDIA H100 80GB HBM3", from start() on; empty: not known.
  virtual std::string name() const { return ""; }
  virtual void synchronize() = 0;  // returns when all work given to it is done
};

}  // namespace heddle

// Bytes from rank to rank within one group: the interface of a transport; the collectives use it.
#pragma once

#include <cstddef>
#include <memory>

#include "heddle/base/export.h"

namespace heddle::mesh {

// One message in flight; its memory must not be touched until wait() returns. Destroying it cancels it.
class HEDDLE_API Transfer {
 public:
  virtual ~Transfer();
  // Throws std::exception when the connection broke or abort() was called; has no limit of its own.
  virtual void wait() = 0;
  virtual void abort() = 0;  // ends a blocking wait; from any thread, repeatedly
};

// Messages between two ranks with one tag arrive in the order of their sending. Posting never blocks. Safe to
// call from several threads.
class HEDDLE_API Wire {
 public:
  virtual ~Wire();
  virtual std::unique_ptr<Transfer> send(const void* data, size_t count, int peer, int tag) = 0;
  virtual std::unique_ptr<Transfer> receive(void* data, size_t count, int peer, int tag) = 0;
  virtual void abort() = 0;  // of all transfers
  // Called by all ranks of the group before a collective in which any two ranks exchange messages; blocks.
  virtual void open_all() {}
};

}  // namespace heddle::mesh

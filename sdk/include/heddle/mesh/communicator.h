// Collectives of one group of ranks. Threads, shared memory, Gloo and the dry world implement them; plugins
// may add implementations.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "heddle/base/export.h"

namespace heddle {

// A collective in flight, which holds its tensors. Call wait() exactly once, before the tensors are read or
// written again, inside a call of the engine (a forward, a backward, a step). A rank runs one such call at a
// time.
class HEDDLE_API Work {
 public:
  virtual ~Work();
  // Waits for the result. Throws Error{rank_lost} naming the dead rank and the collective, or Error{timeout}.
  virtual void wait() = 0;
  // Returns true if wait() would return at once, false if that is unknown.
  virtual bool done() const;
};

// The reduction. `average` divides the sum by the number of ranks; for 16-bit floats it divides before
// rounding.
enum class Reduce { sum, max, average };

// The collectives of a group. All ranks of the group call them in the same order, except send and receive.
// Tensors are contiguous. On the CPU, sums are taken in rank order, in fp32 for 16-bit floats, so results are
// bitwise reproducible. Calls return at once; the result is valid after wait().
class HEDDLE_API Communicator {
 public:
  virtual ~Communicator();
  virtual int rank() const = 0;  // this rank's index in the group
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;  // the axis, for messages

  // Concatenates `in` of all ranks in rank order. out: size() times as many elements as in. `in` may be this
  // rank's part of `out`.
  virtual std::unique_ptr<Work> all_gather(at::Tensor out, at::Tensor in) = 0;
  // Reduces over ranks, and gives each rank its rank()-th part of the result. in: size() times as many
  // elements as out. `out` may be this rank's part of `in`.
  virtual std::unique_ptr<Work> reduce_scatter(at::Tensor out, at::Tensor in,
                                               Reduce reduce = Reduce::sum) = 0;
  virtual std::unique_ptr<Work> all_reduce(at::Tensor inout, Reduce reduce = Reduce::sum) = 0;
  // Sends in_rows[r] rows of dim 0 to each rank r, and receives out_rows[r] rows from it.
  virtual std::unique_ptr<Work> all_to_all(at::Tensor out, at::Tensor in, std::span<const int64_t> out_rows,
                                           std::span<const int64_t> in_rows) = 0;
  virtual std::unique_ptr<Work> broadcast(at::Tensor inout, int root) = 0;
  // Sends to the receive() with the same tag on the peer; shapes and dtypes are equal on both ranks. Devices
  // ignore tags, so two ranks call their sends and receives in the same order. The first transfer of a pair
  // in one direction may block until the other rank calls it too, so the ranks of a ring must not all begin
  // with a receive, or all with a send.
  virtual std::unique_ptr<Work> send(at::Tensor tensor, int peer, int tag) = 0;
  virtual std::unique_ptr<Work> receive(at::Tensor tensor, int peer, int tag) = 0;
};

}  // namespace heddle

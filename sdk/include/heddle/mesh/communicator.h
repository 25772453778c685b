// The collectives of one group of ranks. Implemented by threads, shared memory, Gloo and the dry world;
// plugins may add more.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "heddle/base/export.h"

namespace heddle {

// One collective in flight. It holds its tensors; wait() once, before they are read or written
// again, in a call of the engine (a forward, a backward, a step): a rank has one at a time. A Work must not
// be dropped without wait().
class HEDDLE_API Work {
 public:
  virtual ~Work();
  // Throws Error{rank_lost} naming the dead rank and the collective, or Error{timeout}.
  virtual void wait() = 0;
  // True when wait() would return at once; false if unknown.
  virtual bool done() const;
};

// average: the sum divided by the number of ranks; for 16-bit floats before the sum is rounded.
enum class Reduce { sum, max, average };

// Every member is a collective of all ranks of the group, called in the same order by each, except send and
// receive. Tensors are contiguous. On the CPU, sums are taken in rank order and, for 16-bit floats, in fp32,
// so two runs give the same bits. Calls return at once; the result is valid after wait().
class HEDDLE_API Communicator {
 public:
  virtual ~Communicator();
  virtual int rank() const = 0;  // in this group
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;  // the axis, for messages

  // out: size() times as many elements as in, the ranks' parts in rank order. `in` may be this rank's part of
  // out.
  virtual std::unique_ptr<Work> all_gather(at::Tensor out, at::Tensor in) = 0;
  // in: size() times as many elements as out; out is the sum over ranks of their rank()-th parts. `out` may
  // be this rank's part of in.
  virtual std::unique_ptr<Work> reduce_scatter(at::Tensor out, at::Tensor in,
                                               Reduce reduce = Reduce::sum) = 0;
  virtual std::unique_ptr<Work> all_reduce(at::Tensor inout, Reduce reduce = Reduce::sum) = 0;
  // Row counts of dim 0, one per rank, for what is sent (in_rows) and received (out_rows).
  virtual std::unique_ptr<Work> all_to_all(at::Tensor out, at::Tensor in, std::span<const int64_t> out_rows,
                                           std::span<const int64_t> in_rows) = 0;
  virtual std::unique_ptr<Work> broadcast(at::Tensor inout, int root) = 0;
  // A send is matched with the receive of the same tag on the peer; shapes and dtypes are equal on both
  // sides. A device has no tags: from one rank to another, sends and receives are called in one order. The
  // first transfer of a pair in one direction may block until the other side calls it too, so ranks in a ring
  // may not all begin with a receive, or all with a send.
  virtual std::unique_ptr<Work> send(at::Tensor tensor, int peer, int tag) = 0;
  virtual std::unique_ptr<Work> receive(at::Tensor tensor, int peer, int tag) = 0;
};

}  // namespace heddle

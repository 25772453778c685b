// One collective as a rank asks for it, checked before anything is sent: the same rules for every
// communicator.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/export.h"
#include "heddle/mesh/communicator.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle::mesh {

// The errors of ranks that do not come: one wording for every communicator.

// "0-3, 6": ascending ranks, runs of three and more shortened.
HEDDLE_API std::string list_ranks(std::span<const int> ranks);

// "rank 3", "ranks 0-3, 6"; "ranks 0-1 on a and ranks 2-3 on b" if the ranks are on several machines.
// host_name: see Rendezvous::host_name().
HEDDLE_API std::string name_ranks(std::span<const int> ranks,
                                  const std::function<std::string(int rank)>& host_name);

// how: "was killed or lost its machine", "failed: ...". waited: "all_gather on dp_shard", or empty for none.
// host: the name of the machine of the rank, or empty.
HEDDLE_API Error rank_lost(int rank, const std::string& how, const std::string& waited,
                           const std::string& host = "");

// A rank that did not come. why: "stopped by a signal, state T"; empty: not known, or its process runs.
struct Absent {
  int rank = 0;
  std::string why = {};
  std::string host = {};  // the name of its machine, or empty
};

// absent: empty when it is not known which.
HEDDLE_API Error timed_out(const std::string& waited, std::chrono::milliseconds elapsed,
                           std::span<const Absent> absent);

// "1.5 s".
HEDDLE_API std::string in_seconds(std::chrono::milliseconds time);

enum class Operation { all_gather, reduce_scatter, all_reduce, all_to_all, broadcast, send, receive };

HEDDLE_API const char* name_of(Operation operation);

// `out` is written and `in` is read; the in-place collectives have both the same. A send has only `in`, a
// receive only `out`.
struct Call {
  Operation operation = Operation::all_reduce;
  at::Tensor out = {}, in = {};
  std::vector<int64_t> out_rows = {}, in_rows = {};  // all_to_all
  Reduce reduce = Reduce::sum;
  int peer = 0;  // the root of a broadcast, the other side of a send or receive
  int tag = 0;

  // "all_reduce (max) of 12 Float": must be equal on all ranks of a group.
  HEDDLE_API std::string describe() const;
};

// Throws Error{internal} for tensors that do not match: contiguity, dtype, element and row counts, peer.
HEDDLE_API void check(const Call& call, int rank, int size, const std::string& axis);

// Throws Error{internal} for a tensor that is not in the CPU's memory.
HEDDLE_API void check_cpu(const Call& call, const std::string& axis);

// Performs a collective whose ranks are all in this address space: one call per rank, in rank order. Bytes
// only: no autograd, no version counters.
HEDDLE_API void carry_out(std::span<const Call> calls);

// Turns the interface's functions into checked calls to post().
class HEDDLE_API CheckedCommunicator : public Communicator {
 public:
  CheckedCommunicator(std::string name, int rank, int size)
      : name_(std::move(name)), rank_(rank), size_(size) {}
  ~CheckedCommunicator() override;
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& name() const override { return name_; }

  std::unique_ptr<Work> all_gather(at::Tensor out, at::Tensor in) override;
  std::unique_ptr<Work> reduce_scatter(at::Tensor out, at::Tensor in, Reduce reduce) override;
  std::unique_ptr<Work> all_reduce(at::Tensor inout, Reduce reduce) override;
  std::unique_ptr<Work> all_to_all(at::Tensor out, at::Tensor in, std::span<const int64_t> out_rows,
                                   std::span<const int64_t> in_rows) override;
  std::unique_ptr<Work> broadcast(at::Tensor inout, int root) override;
  std::unique_ptr<Work> send(at::Tensor tensor, int peer, int tag) override;
  std::unique_ptr<Work> receive(at::Tensor tensor, int peer, int tag) override;

 protected:
  virtual std::unique_ptr<Work> post(Call call) = 0;

 private:
  std::unique_ptr<Work> checked(Call call);

  std::string name_;
  int rank_, size_;
};

// A collective that is already done.
class HEDDLE_API DoneWork : public Work {
 public:
  ~DoneWork() override;
  void wait() override {}
  bool done() const override { return true; }
};

// What a device may offer beside a Communicator.

// {source, target}: ranks of a group.
using TransferPair = std::pair<int, int>;

// Optional, beside Communicator: a device whose ranks make a connection for each pair.
class HEDDLE_API ConnectsAhead {
 public:
  virtual ~ConnectsAhead();
  // See below. Throws Error{rank_lost | timeout}.
  virtual void connect(std::span<const TransferPair> transfers) = 0;
};

// All ranks of the group call it, in one order with its collectives, with the same list, whoever is in it.
// The connections are made now, in the order of the list, so that none of these transfers is a first one that
// blocks. Others may follow. Does nothing for a communicator that connects nothing.
HEDDLE_API void connect(Communicator& group, std::span<const TransferPair> transfers);

// The tensors of Communicator::all_gather.
struct GatherInto {
  at::Tensor out, in;
};

// Optional, beside Communicator: where further all-gathers cost next to nothing once one is started (NCCL's
// groups of calls).
class HEDDLE_API GathersEach {
 public:
  virtual ~GathersEach();
  // As all_gather() of each, in this order; one Work for all of them. `gathers` is not empty.
  virtual std::unique_ptr<Work> gather_each(std::span<const GatherInto> gathers) = 0;
};

// Whether the group is one of those; the same on all ranks.
HEDDLE_API bool gathers_each(const Communicator& group);
// Throws Error{internal} where it is not.
HEDDLE_API std::unique_ptr<Work> gather_each(Communicator& group, std::span<const GatherInto> gathers);

}  // namespace heddle::mesh

// A world of one rank: nothing is sent, every collective is a local copy.

namespace heddle {

// The group of an axis of size 1.
class HEDDLE_API AloneCommunicator : public mesh::CheckedCommunicator {
 public:
  explicit AloneCommunicator(std::string name) : CheckedCommunicator(std::move(name), 0, 1) {}
  ~AloneCommunicator() override;

 protected:
  std::unique_ptr<Work> post(mesh::Call call) override;
};

class HEDDLE_API AloneRendezvous : public Rendezvous {
 public:
  explicit AloneRendezvous(Log log = {}) : log_(std::move(log)) {}
  ~AloneRendezvous() override;
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  int local_rank() const override { return 0; }
  int local_world_size() const override { return 1; }
  const Log& log() const override { return log_; }
  std::string hold_rendezvous(const std::string&, const std::string& text, const Answer& answer) override {
    return answer({&text, 1}).front();
  }
  std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) override;

 private:
  Log log_;
};

}  // namespace heddle

// A collective call of one rank, with the checks that every communicator makes before it sends data.
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

// Errors for ranks that do not arrive, with the same text for every communicator.

// Returns ascending ranks as text, with runs of three or more shortened: "0-3, 6".
HEDDLE_API std::string list_ranks(std::span<const int> ranks);

// Returns "rank 3" or "ranks 0-3, 6"; if the run uses several machines, "ranks 0-1 on a and ranks 2-3 on b".
// host_name: see Rendezvous::host_name().
HEDDLE_API std::string name_ranks(std::span<const int> ranks,
                                  const std::function<std::string(int rank)>& host_name);

// Returns Error{rank_lost}. how: "was killed or lost its machine" or "failed: ...". waited: the collective
// that was waiting, such as "all_gather on dp_shard", or empty. host: the rank's machine, or empty.
HEDDLE_API Error rank_lost(int rank, const std::string& how, const std::string& waited,
                           const std::string& host = "");

// A rank that did not reach a collective. why: "stopped by a signal, state T"; empty if unknown or if its
// process is running.
struct Absent {
  int rank = 0;
  std::string why = {};
  std::string host = {};  // the rank's machine, or empty
};

// Returns Error{timeout}. waited: the collective, such as "all_gather on dp_shard". absent: the missing
// ranks; empty if unknown.
HEDDLE_API Error timed_out(const std::string& waited, std::chrono::milliseconds elapsed,
                           std::span<const Absent> absent);

// Returns the time as text: "1.5 s".
HEDDLE_API std::string in_seconds(std::chrono::milliseconds time);

enum class Operation { all_gather, reduce_scatter, all_reduce, all_to_all, broadcast, send, receive };

// Returns the name of the operation, such as "all_reduce".
HEDDLE_API const char* name_of(Operation operation);

// The arguments of a collective. `in` is read and `out` is written; an in-place collective has the same
// tensor in both. A send has only `in`, a receive only `out`.
struct Call {
  Operation operation = Operation::all_reduce;
  at::Tensor out = {}, in = {};
  std::vector<int64_t> out_rows = {}, in_rows = {};  // rows per rank of an all_to_all
  Reduce reduce = Reduce::sum;
  int peer = 0;  // the root of a broadcast, the other rank of a send or receive
  int tag = 0;

  // Describes the call, such as "all_reduce (max) of 12 Float". The text must be equal on all ranks of a
  // group.
  HEDDLE_API std::string describe() const;
};

// Throws Error{internal} for tensors that do not match in contiguity, dtype, elements, rows or peer.
HEDDLE_API void check(const Call& call, int rank, int size, const std::string& axis);

// Throws Error{internal} for a tensor that is not in CPU memory.
HEDDLE_API void check_cpu(const Call& call, const std::string& axis);

// Performs a collective whose ranks share this address space: one call per rank, in rank order. Copies bytes
// without autograd and without version counters.
HEDDLE_API void carry_out(std::span<const Call> calls);

// A communicator that checks each call and passes it to post(). A base class for transports.
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

// The Work of a collective that is already complete.
class HEDDLE_API DoneWork : public Work {
 public:
  ~DoneWork() override;
  void wait() override {}
  bool done() const override { return true; }
};

// Optional features of a communicator.

// {source, target}, both ranks of the group.
using TransferPair = std::pair<int, int>;

// Optional base of a Communicator whose ranks open a connection per pair of ranks.
class HEDDLE_API ConnectsAhead {
 public:
  virtual ~ConnectsAhead();
  // Opens the connections; see mesh::connect(). Throws Error{rank_lost | timeout}.
  virtual void connect(std::span<const TransferPair> transfers) = 0;
};

// Opens the connections of the transfers in advance, in the order of the list, so that the first send of a
// pair does not block. Called by all ranks of the group in the same order as its collectives, with the same
// list, even by ranks without a transfer in it. Other pairs may follow in later calls. Does nothing for a
// communicator without ConnectsAhead.
HEDDLE_API void connect(Communicator& group, std::span<const TransferPair> transfers);

// The tensors of one Communicator::all_gather().
struct GatherInto {
  at::Tensor out, in;
};

// Optional base of a Communicator that gathers several tensors in one launch (NCCL's group calls).
class HEDDLE_API GathersEach {
 public:
  virtual ~GathersEach();
  // Starts an all_gather() for each element, in order, and returns one Work for all. `gathers` is not empty.
  virtual std::unique_ptr<Work> gather_each(std::span<const GatherInto> gathers) = 0;
};

// Returns whether the communicator implements GathersEach. Equal on all ranks.
HEDDLE_API bool gathers_each(const Communicator& group);
// Calls GathersEach::gather_each(). Throws Error{internal} if the communicator does not implement it.
HEDDLE_API std::unique_ptr<Work> gather_each(Communicator& group, std::span<const GatherInto> gathers);

}  // namespace heddle::mesh

// A world of one rank. Every collective is a local copy.

namespace heddle {

// The group of an axis of size 1.
class HEDDLE_API AloneCommunicator : public mesh::CheckedCommunicator {
 public:
  explicit AloneCommunicator(std::string name) : CheckedCommunicator(std::move(name), 0, 1) {}
  ~AloneCommunicator() override;

 protected:
  std::unique_ptr<Work> post(mesh::Call call) override;
};

// The rendezvous of a world of one rank.
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

// Where the ranks of a run meet: who this rank is, a place for short texts, and the making of groups.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/export.h"
#include "heddle/base/log.h"
#include "heddle/mesh/communicator.h"

namespace heddle {

// A collective that does not come to its end, as a communicator sees it.
struct Broken {
  std::string waited;        // "all_gather on dp_shard"
  std::vector<int> members;  // the global ranks of its group
  std::chrono::milliseconds elapsed{};
  enum class How { timed_out, failed } how = How::failed;
  std::string said;  // what the transport said of it
};

class HEDDLE_API Rendezvous {
 public:
  virtual ~Rendezvous();
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual int local_rank() const = 0;
  virtual int local_world_size() const = 0;  // ranks on this machine
  virtual const Log& log() const = 0;

  // Where this rank's parameters live. Groups move its tensors and the CPU's; both tensors of one call are of
  // one kind.
  virtual c10::Device device() const { return at::kCPU; }

  // What rank 0 makes of the texts of all ranks, in rank order: one text for all ranks, or one for each.
  using Answer = std::function<std::vector<std::string>(std::span<const std::string> texts)>;
  // A meeting of all ranks: each gives a text, rank 0 answers, each gets its answer. So a rank pays for its
  // own text and answer alone. `answer` is called on rank 0 only; what it throws is thrown on every rank. A
  // `key` may come again.
  std::string meet(const std::string& key, const std::string& text, const Answer& answer);
  // Every rank has come.
  void barrier(const std::string& key);
  // Each rank gets the texts of all, in rank order. Costs world size squared: for few ranks.
  std::vector<std::string> exchange(const std::string& key, const std::string& text);

  // Collectives among `ranks` (global, ascending; this rank is one of them). Called by exactly those ranks,
  // in one order. `name` says which axis it is, in messages.
  virtual std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) = 0;

  // The end of a healthy run, called by every rank: from here on its silence is no death. Rank 0 waits for
  // the others, as it serves the place where they meet.
  virtual void leave() {}
  // This rank failed: the others get Error{rank_lost} with `why` at once instead of after its silence.
  virtual void abandon(const std::string& why) {}

  // For communicators that plugins bring: how long a collective may take; the error to throw for one that
  // broke, which finds out who is to blame and may take some seconds; and a call from another thread, again
  // and again once a rank is lost, to release what blocks, until forget() of the same owner.
  virtual std::chrono::milliseconds timeout() const { return std::chrono::minutes(10); }
  virtual Error verdict(const Broken& broken);
  virtual void interrupt(const void* owner, std::function<void()> release) {}
  virtual void forget(const void* owner) {}

  // meet() for an `answer` that does not throw.
  virtual std::string hold_meeting(const std::string& key, const std::string& text, const Answer& answer) = 0;
};

}  // namespace heddle

// Where the ranks of a run meet: this rank's number, exchange of short texts, and creation of groups.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/export.h"
#include "heddle/base/log.h"
#include "heddle/mesh/communicator.h"

namespace heddle {

// A collective that failed or timed out, as a communicator sees it.
struct Broken {
  std::string waited;        // "all_gather on dp_shard"
  std::vector<int> members;  // the global ranks of its group
  std::chrono::milliseconds elapsed{};
  enum class How { timed_out, failed } how = How::failed;
  std::string said;  // the transport's message
};

class HEDDLE_API Rendezvous {
 public:
  virtual ~Rendezvous();
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual int local_rank() const = 0;
  virtual int local_world_size() const = 0;  // ranks on this machine
  // The name of the machine of a rank, for messages. Empty if all ranks of the run are on one machine.
  virtual std::string host_name(int rank) const { return ""; }
  virtual const Log& log() const = 0;

  // Where this rank's parameters live. Groups move tensors of this device and of the CPU; both tensors of one
  // call are on the same one.
  virtual c10::Device device() const { return at::kCPU; }

  // Computed by rank 0 from the texts of all ranks, in rank order: one text for all ranks, or one for each.
  using Answer = std::function<std::vector<std::string>(std::span<const std::string> texts)>;
  // A rendezvous of all ranks: each gives a text, rank 0 answers, each gets its answer. A rank pays only for
  // its own text and answer. `answer` is called on rank 0 only; what it throws is thrown on every rank. A
  // `key` may be reused.
  std::string meet(const std::string& key, const std::string& text, const Answer& answer);
  // Returns when every rank has called it.
  void barrier(const std::string& key);
  // Each rank gets the texts of all, in rank order. Costs the square of the world size: for few ranks.
  std::vector<std::string> exchange(const std::string& key, const std::string& text);

  // Collectives among `ranks` (global, ascending; this rank is one of them). Called by exactly those ranks,
  // in one order. `name` is the axis, for messages.
  virtual std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) = 0;

  // Ends a healthy run; called by every rank. Missing heartbeats no longer count as a failure. Rank 0 waits
  // for the others, because it serves the store.
  virtual void leave() {}
  // This rank failed: the others get Error{rank_lost} with `why` at once.
  virtual void abandon(const std::string& why) {}

  // For communicators of plugins: how long a collective may take; the error for one that broke, which
  // determines the lost rank and may take some seconds; and a callback from another thread, repeated once a
  // rank is lost, to release what blocks, until forget() of the same owner.
  virtual std::chrono::milliseconds timeout() const { return std::chrono::minutes(10); }
  virtual Error verdict(const Broken& broken);
  virtual void interrupt(const void* owner, std::function<void()> release) {}
  virtual void forget(const void* owner) {}

  // meet() for an `answer` that does not throw.
  virtual std::string hold_rendezvous(const std::string& key, const std::string& text,
                                      const Answer& answer) = 0;
};

// A rendezvous around another one, which outlives it: a device's, whose groups are its own. Everything but
// group() is the inner one's.
class HEDDLE_API WrappedRendezvous : public Rendezvous {
 public:
  explicit WrappedRendezvous(Rendezvous& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int world_size() const override { return inner_.world_size(); }
  int local_rank() const override { return inner_.local_rank(); }
  int local_world_size() const override { return inner_.local_world_size(); }
  std::string host_name(int rank) const override { return inner_.host_name(rank); }
  const Log& log() const override { return inner_.log(); }
  c10::Device device() const override { return inner_.device(); }
  void leave() override { inner_.leave(); }
  void abandon(const std::string& why) override { inner_.abandon(why); }
  std::chrono::milliseconds timeout() const override { return inner_.timeout(); }
  Error verdict(const Broken& broken) override { return inner_.verdict(broken); }
  void interrupt(const void* owner, std::function<void()> release) override {
    inner_.interrupt(owner, std::move(release));
  }
  void forget(const void* owner) override { inner_.forget(owner); }
  std::string hold_rendezvous(const std::string& key, const std::string& text,
                              const Answer& answer) override {
    return inner_.hold_rendezvous(key, text, answer);
  }

 protected:
  Rendezvous& inner() { return inner_; }

 private:
  Rendezvous& inner_;
};

}  // namespace heddle

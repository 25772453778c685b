// The rendezvous of the ranks of a run: rank numbers, exchange of short texts, creation of groups.
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

// A collective that failed or timed out, as its communicator reports it.
struct Broken {
  std::string waited;        // "all_gather on dp_shard"
  std::vector<int> members;  // global ranks of the group
  std::chrono::milliseconds elapsed{};
  enum class How { timed_out, failed } how = How::failed;
  std::string said;  // the message of the transport
};

// The ranks of a run, as one of them sees it.
class HEDDLE_API Rendezvous {
 public:
  virtual ~Rendezvous();
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual int local_rank() const = 0;
  virtual int local_world_size() const = 0;  // number of ranks on this machine
  // Returns the machine of a rank, for messages. Empty if all ranks of the run are on one machine.
  virtual std::string host_name(int rank) const { return ""; }
  virtual const Log& log() const = 0;

  // Returns the device of this rank's parameters. Groups move tensors of this device and of the CPU; both
  // tensors of one call are on the same device.
  virtual c10::Device device() const { return at::kCPU; }

  // Computes on rank 0, from the texts of all ranks in rank order, one text for all ranks or one text per
  // rank.
  using Answer = std::function<std::vector<std::string>(std::span<const std::string> texts)>;
  // Sends each rank's text to rank 0, which calls `answer`, and returns this rank's answer. Called by all
  // ranks. A rank transfers only its own text and answer. An exception of `answer` is thrown on every rank.
  // `key` may be reused.
  std::string meet(const std::string& key, const std::string& text, const Answer& answer);
  // Returns when every rank has called it.
  void barrier(const std::string& key);
  // Returns the texts of all ranks, in rank order. The traffic grows with the square of the world size, so
  // use it only for few ranks.
  std::vector<std::string> exchange(const std::string& key, const std::string& text);

  // Creates the collectives among `ranks` (global, ascending, including this rank). Called by exactly these
  // ranks, in the same order. `name` is the axis, for messages.
  virtual std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) = 0;

  // Ends a healthy run. Called by every rank. Missing heartbeats no longer count as a failure. Rank 0, which
  // serves the store, waits for the other ranks.
  virtual void leave() {}
  // Reports that this rank failed: the other ranks get Error{rank_lost} with `why` at once.
  virtual void abandon(const std::string& why) {}

  // Functions for communicators of plugins. timeout() is the time limit of a collective. verdict() returns
  // the error for a broken collective; it determines the lost rank, which may take seconds. interrupt()
  // registers a callback that releases blocked calls: once a rank is lost, another thread calls it repeatedly
  // until forget() with the same owner.
  virtual std::chrono::milliseconds timeout() const { return std::chrono::minutes(10); }
  virtual Error verdict(const Broken& broken);
  virtual void interrupt(const void* owner, std::function<void()> release) {}
  virtual void forget(const void* owner) {}

  // Implements meet() for an `answer` that does not throw.
  virtual std::string hold_rendezvous(const std::string& key, const std::string& text,
                                      const Answer& answer) = 0;
};

// A rendezvous that forwards to another one, which outlives it. The base of a device's rendezvous, which has
// its own groups.
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

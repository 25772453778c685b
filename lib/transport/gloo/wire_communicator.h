// A group's communicator over a wire: collectives run on a thread of its own, beside the rank's compute.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "heddle/mesh/call.h"
#include "lib/transport/gloo/wire.h"
#include "lib/transport/liveness/watch.h"

namespace heddle::mesh {

// A collective that was posted and not yet performed.
struct Posted {
  Call call;
  bool done = false;
};

// A send or receive: it starts when there is a wire.
struct Direct {
  Call call;  // keeps the tensor
  std::unique_ptr<Transfer> transfer = {};
  std::string broken = {};  // why it could not start

  void start(Wire& wire);
  bool started() const { return transfer || !broken.empty(); }
};

// The part that the thread uses; it may outlive the communicator if a wire blocks.
struct WireLine {
  // Connects, then performs posted calls in order until it is stopped or a call fails.
  void work(const std::function<std::unique_ptr<Wire>()>& connect, int rank, int size);

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Posted>> posted;
  std::deque<std::shared_ptr<Direct>> early;  // posted before there was a wire
  std::shared_ptr<Wire> wire;                 // null until it is connected
  std::string broken;                         // the wire's error; nothing is performed afterwards
  bool stop = false, ended = false;
};

// The watch outlives the communicator.
class WireCommunicator : public CheckedCommunicator {
 public:
  WireCommunicator(std::string name, int rank, std::vector<int> ranks, std::chrono::milliseconds timeout,
                   Watch& watch);
  void start(std::function<std::unique_ptr<Wire>()> connect);  // once, before the first call; connect blocks
  ~WireCommunicator() override;                                // sends nothing; cancels calls in flight

 protected:
  std::unique_ptr<Work> post(Call call) override;

 private:
  friend class PostedWork;
  friend class DirectWork;

  std::unique_ptr<Work> post_direct(Call call);
  // Waits with the line's mutex held while the watchdog counts this rank as waiting; throws the watchdog's
  // error when a rank is lost or time is up. start: in the watchdog's running time.
  void wait(std::unique_lock<std::mutex>& lock, const std::string& waited, std::chrono::milliseconds start,
            const std::function<bool()>& ready);
  [[noreturn]] void fail(const std::string& waited, std::chrono::milliseconds start,
                         const std::string& broken);
  std::string waited(Operation operation) const { return std::string(name_of(operation)) + " on " + name(); }

  const std::vector<int> ranks_;
  const std::chrono::milliseconds timeout_;
  Watch& watch_;
  const std::shared_ptr<WireLine> line_ = std::make_shared<WireLine>();
};

}  // namespace heddle::mesh

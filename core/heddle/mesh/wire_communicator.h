// A group's communicator over a wire: collectives run on a thread of its own, behind the rank's compute.
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
#include "heddle/mesh/watch.h"
#include "heddle/mesh/wire.h"

namespace heddle::mesh {

// A collective that was posted and not yet carried out.
struct Posted {
  Call call;
  bool done = false;
};

// The half that the thread works on; it may outlive the communicator when a wire does not let go.
struct WireLine {
  // Connects, then carries out what is posted, in order, until it is told to stop or something breaks.
  void work(const std::function<std::unique_ptr<Wire>()>& connect, int rank, int size);

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Posted>> posted;
  std::shared_ptr<Wire> wire;  // null until it is connected
  std::string broken;          // what the wire said when it broke; nothing is carried out afterwards
  bool stop = false, ended = false;
};

// The watch outlives the communicator.
class WireCommunicator : public CheckedCommunicator {
 public:
  WireCommunicator(std::string name, int rank, std::vector<int> ranks, std::chrono::milliseconds timeout,
                   Watch& watch);
  void start(std::function<std::unique_ptr<Wire>()> connect);  // once, before the first call; connect blocks
  ~WireCommunicator() override;  // sends nothing; gives up what is still under way

 protected:
  std::unique_ptr<Work> post(Call call) override;

 private:
  friend class PostedWork;
  friend class TransferWork;

  std::unique_ptr<Work> post_direct(Call call);
  // Waits with the line's mutex held; throws what the watch finds when a rank is lost or time is up.
  void wait(std::unique_lock<std::mutex>& lock, const std::string& waited,
            const std::function<bool()>& ready);
  [[noreturn]] void fail(const std::string& waited, std::chrono::steady_clock::time_point start,
                         const std::string& broken);
  std::string waited(Operation operation) const { return std::string(name_of(operation)) + " on " + name(); }

  const std::vector<int> ranks_;
  const std::chrono::milliseconds timeout_;
  Watch& watch_;
  const std::shared_ptr<WireLine> line_ = std::make_shared<WireLine>();
};

}  // namespace heddle::mesh

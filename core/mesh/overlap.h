// Two parts of a rank's work, of which one computes while the other waits for other ranks.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/FunctionRef.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include "heddle/base/export.h"
#include "heddle/mesh/communicator.h"

namespace heddle {

// Overlaps the forward of one microbatch with the backward of another, as DualPipe does (DeepSeek-AI 2024,
// arXiv:2412.19437). One part runs at a time, and the parts switch where they wait, whatever the time, so
// every rank posts its collectives in the same order. A rank has one; while it runs, only its two parts wait
// for works of the mesh.
class HEDDLE_API Overlap {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Overlap(c10::Device device) : device_(device) {}
  ~Overlap();
  Overlap(const Overlap&) = delete;
  Overlap& operator=(const Overlap&) = delete;

  // Runs both, beginning with the first. The one that runs hands over to the other before it waits for a
  // collective that was posted in run(), and at its end. If the first one hands over, the second one runs on
  // another thread, with the caller's at::ThreadLocalState, number of threads and stream. After an exception
  // the other part ends after its next wait for such a collective, and the exception is thrown again. Throws
  // Error{internal} if it is called within itself.
  void run(c10::function_ref<void()> first, c10::function_ref<void()> second);
  bool is_running() const { return is_running_.load(std::memory_order_relaxed); }
  // Lets the other part run until it waits or ends. Does nothing outside of run(), and in a Hold.
  void hand_over();
  // hand_over(), then waits.
  void wait(Work& work);
  // How long the part that calls it has let the other one run, since run() began.
  Clock::duration away() const { return away_[part_.load()]; }

  // A scope of this thread that does not hand over, because it changed a state of all threads for a while.
  class HEDDLE_API Hold {
   public:
    Hold();
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
  };

 private:
  void give(int part);
  void perform(int part, c10::function_ref<void()> body);
  void serve();

  const c10::Device device_;
  std::atomic<bool> is_running_ = false;
  std::atomic<int> part_ = 0;  // the part whose thread may run: 0 or 1
  // Of this run(); touched by the part that runs.
  bool handed_over_ = false, has_ended_[2] = {};
  Clock::duration away_[2] = {};
  std::exception_ptr error_;
  std::function<void()> second_;
  // The thread of the second part.
  bool is_ending_ = false;
  std::thread thread_;
};

namespace mesh {

// Wraps a group: works that are posted while the overlap runs hand over before they wait. The overlap
// outlives it.
std::unique_ptr<Communicator> overlapped(std::unique_ptr<Communicator> group, Overlap& overlap);

}  // namespace mesh
}  // namespace heddle

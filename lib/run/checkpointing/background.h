// One piece of work at a time on a thread beside the caller's.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <thread>

namespace heddle {

class Background {
 public:
  Background() = default;
  ~Background();  // waits; what went wrong is lost
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Waits for the piece before, and throws what that one threw; then starts.
  void start(std::function<void()> work);
  // Waits until nothing is under way, and throws what the last piece threw, once.
  void wait();
  // The last piece has thrown, and the error was not fetched yet.
  bool has_failed() const { return has_failed_; }

 private:
  std::thread thread_;
  std::exception_ptr thrown_;
  std::atomic<bool> has_failed_ = false;
};

}  // namespace heddle

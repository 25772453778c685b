// A background thread that runs one task at a time.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <thread>

namespace heddle {

class Background {
 public:
  Background() = default;
  ~Background();  // waits for the task and drops its exception
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Waits for the previous task and rethrows its exception, then starts `work`.
  void start(std::function<void()> work);
  // Waits until no task runs. Rethrows the exception of the last task, once.
  void wait();
  // Whether the last task threw an exception that was not rethrown yet.
  bool has_failed() const { return has_failed_; }

 private:
  std::thread thread_;
  std::exception_ptr thrown_;
  std::atomic<bool> has_failed_ = false;
};

}  // namespace heddle

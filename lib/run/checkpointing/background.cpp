// Runs tasks on a background thread and rethrows their exceptions.
#include "lib/run/checkpointing/background.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace heddle {
namespace {

constexpr int kLessUrgent =
    5;  // niceness, at most 19: a third of a contended core, so the training threads come first

void be_less_urgent() {
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kLessUrgent);
}

}  // namespace

Background::~Background() {
  if (thread_.joinable()) thread_.join();
}

void Background::start(std::function<void()> work) {
  wait();
  thread_ = std::thread([this, work = std::move(work)] {
    be_less_urgent();
    try {
      work();
    } catch (...) {
      thrown_ = std::current_exception();
      has_failed_ = true;
    }
  });
}

void Background::wait() {
  if (thread_.joinable()) thread_.join();
  has_failed_ = false;
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

}  // namespace heddle

// A thread that waits for signals, and the words that answer them.
#include "trainer/cli/stop_signals.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <thread>

#include "heddle/base/error.h"
#include "trainer/cli/last_words.h"
#include "trainer/recipe/signals.h"

namespace heddle::cli {
namespace {

// The lines that a signal's handler prints, made before it is installed.
std::vector<std::string> lines_of_signals;

void leave(int number) {
  const std::string& line = lines_of_signals[number];
  [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, line.data(), line.size());
  ::_exit(0);
}

sigset_t set_of(const std::vector<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : signals) sigaddset(&set, number);
  return set;
}

// A rank's part of it.
void note(int number, StopWish& wish) {
  int none = 0;
  wish.signal.compare_exchange_strong(none, number);
}

void answer_alone(int number, StopWish& wish, launch::Repeats& repeats) {
  if (!wish.stepping) {
    launch::write_all(STDOUT_FILENO, stopped_before_the_first_step(number) + "\n");
    ::_exit(0);
  }
  if (repeats.is_another()) launch::end_interrupted();
  if (wish.signal == 0) launch::write_all(STDERR_FILENO, stop_heard(number) + "\n");
  note(number, wish);
}

}  // namespace

std::vector<int> stop_signals(std::vector<int> asked) {
  if (asked.empty()) return asked;
  const auto add = [&](int number) {
    if (std::find(asked.begin(), asked.end(), number) == asked.end()) asked.push_back(number);
  };
  add(SIGINT);
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) add(SIGHUP);
  return asked;
}

StopWish& shared_wish() {
  void* shared = ::mmap(nullptr, sizeof(StopWish), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED)
    throw Error(ErrorCode::internal, "launch",
                std::string("no memory that the ranks share: ") + std::strerror(errno));
  return *new (shared) StopWish;
}

void end_on(const std::vector<int>& signals) {
  for (const int number : signals) {
    if (lines_of_signals.size() <= static_cast<size_t>(number)) lines_of_signals.resize(number + 1);
    lines_of_signals[number] = stopped_before_the_first_step(number) + "\n";
  }
  for (const int number : signals) ::signal(number, leave);
}

void listen(const launch::Stop& stop, Taker taker) {
  if (stop.signals.empty()) return;
  const sigset_t set = set_of(stop.signals);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::thread([set, &wish = *stop.wish, taker] {
    launch::Repeats repeats;
    for (int number = 0;;) {
      if (::sigwait(&set, &number) != 0) continue;
      if (taker == Taker::whole) answer_alone(number, wish, repeats);
      if (taker == Taker::rank) note(number, wish);
    }
  }).detach();
}

std::string stopped_before_the_first_step(int signal) {
  return "stopped by " + signal_name(signal) +
         " before the first step: nothing new to save; the same command starts again";
}

std::string stop_heard(int signal) {
  return signal_name(signal) +
         ": the run saves and ends after this step; a second signal ends it at once, unsaved";
}

}  // namespace heddle::cli

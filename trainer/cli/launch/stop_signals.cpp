// Thread that waits for signals, and its messages.
#include "trainer/cli/launch/stop_signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <thread>

#include "lib/run/recipe/signals.h"
#include "trainer/cli/launch/messages.h"
#include "trainer/cli/launch/shared_memory.h"

namespace heddle::cli {
namespace {

// Message and status of a signal handler, made before it is installed.
struct LastLine {
  std::string line;
  int status = 0;
};
std::vector<LastLine> last_lines;

[[noreturn]] void end_by_signal(int number, const siginfo_t* info) {
  const int status = last_lines[number].status;
  if (number == SIGINT && info->si_code == SI_KERNEL && status != 0) end_by_interrupt();
  ::_exit(status);
}

void leave_by_signal(int number, siginfo_t* info, void*) {
  launch::write_all(STDOUT_FILENO, last_lines[number].line);
  end_by_signal(number, info);
}

sigset_t set_of(const std::vector<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : signals) sigaddset(&set, number);
  return set;
}

// Records the signal in the request.
void note(const siginfo_t& info, StopRequest& request) {
  int none = 0;
  if (request.signal == 0) request.from_terminal = info.si_code == SI_KERNEL;
  request.signal.compare_exchange_strong(none, info.si_signo);
}

void answer_alone(siginfo_t info, const launch::Stop& stop, launch::Repeats& repeats) {
  StopRequest& request = *stop.request;
  if (!request.stepping) leave_by_signal(info.si_signo, &info, nullptr);
  if (repeats.is_another()) launch::end_interrupted();
  if (request.signal == 0) launch::write_message(stop_heard(info.si_signo) + "\n");
  note(info, request);
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

std::vector<int> preemptions(const StepSection& steps, bool is_launched) {
  std::vector<int> out = steps.stop_signals.numbers;
  const std::string sender = steps.preemption_sender.value_or(is_launched ? "scheduler" : "");
  if (sender == "person") out.clear();
  if (sender.empty())
    std::erase_if(out, [](int number) {
      return number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT;
    });
  return out;
}

StopRequest& shared_stop_request() {
  return *new (launch::shared_memory(sizeof(StopRequest))) StopRequest;
}

void hold_signals() {
  const sigset_t set = set_of({SIGTERM, SIGINT, SIGHUP});
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void release_signals(const std::vector<int>& listened) {
  std::vector<int> held = {SIGTERM, SIGINT, SIGHUP};
  std::erase_if(held, [&](int number) {
    return std::find(listened.begin(), listened.end(), number) != listened.end();
  });
  const sigset_t set = set_of(held);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void end_on(const launch::Stop& stop) {
  for (const int number : stop.signals) {
    if (last_lines.size() <= static_cast<size_t>(number)) last_lines.resize(number + 1);
    last_lines[number] = {stopped_before_the_first_step(number) + "\n", stop.status_of(number)};
  }
  struct sigaction action {};
  action.sa_sigaction = leave_by_signal;
  action.sa_flags = SA_SIGINFO;
  for (const int number : stop.signals) ::sigaction(number, &action, nullptr);
}

// Async-signal-safe.
void end_by_interrupt() {
  ::signal(SIGINT, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::raise(SIGINT);
  ::_exit(130);
}

void listen(const launch::Stop& stop, SignalRole taker) {
  if (stop.signals.empty()) return;
  const sigset_t set = set_of(stop.signals);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::thread([set, stop, taker] {
    launch::Repeats repeats;
    for (siginfo_t info{};;) {
      if (::sigwaitinfo(&set, &info) < 0) continue;
      if (taker == SignalRole::whole) answer_alone(info, stop, repeats);
      if (taker != SignalRole::rank) continue;
      note(info, *stop.request);
      if (!stop.tell || stop.request->stepping) continue;
      // The line is printed first, because this rank may read its own stop from the others' store and exit.
      launch::write_all(STDOUT_FILENO, last_lines[info.si_signo].line);
      stop.tell(info.si_signo);
      // The other ranks exit now. No step is lost: a run that reaches its first step has read the record.
      end_by_signal(info.si_signo, &info);
    }
  }).detach();
}

std::string stopped_before_the_first_step(int signal) {
  return "stopped by " + signal_name(signal) +
         " before the first step: there is nothing to save; run the same command to start again";
}

std::string stop_heard(int signal) {
  return signal_name(signal) +
         ": the run saves and stops after this step; a second signal stops it at once without saving";
}

}  // namespace heddle::cli

// Child processes of a test, their identity as the watchdog sees it, and polling for a condition.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "lib/transport/launch/process.h"

namespace heddle::tests {

template <class Question>
bool eventually(const Question& question) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!question() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return question();
}

// Runs `body` in a child process until the destructor.
class Child {
 public:
  explicit Child(void (*body)()) : id_(::fork()) {
    if (id_ != 0) return;
    body();
    for (;;) ::pause();
  }
  ~Child() {
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t id() const { return id_; }
  void await(int options) const { ::waitpid(id_, nullptr, options); }
  void await_end() const {
    siginfo_t info;
    ::waitid(P_PID, static_cast<id_t>(id_), &info, WEXITED | WNOWAIT);  // stays a zombie
  }

 private:
  const pid_t id_;
};

// A child cannot start before this process.
inline mesh::Process process_of(const Child& child) {
  mesh::Process process = mesh::this_process();
  process.id = child.id();
  std::ifstream stat("/proc/" + std::to_string(child.id()) + "/stat");
  std::string word;
  for (int i = 0; i < 22; ++i) stat >> word;
  process.started = std::stoull(word);
  return process;
}

}  // namespace heddle::tests

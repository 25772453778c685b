// Ranks paused for longer than the heartbeat timeout continue where they stopped.
#include <ATen/ops/full.h>
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <thread>
#include <vector>

#include "heddle/transport/join.h"
#include "tests/main/with_all.h"
#include "transport/children.h"

namespace heddle {
namespace {

HEDDLE_WITH_ALL("Transports/*");

using tests::everyone;
using tests::Known;
using tests::run_ranks;

constexpr std::chrono::milliseconds kPause{4500};

bool stop_for_a_while(const std::vector<pid_t>& processes, std::chrono::milliseconds time) {
  bool well = true;
  for (const pid_t process : processes) well = ::kill(process, SIGSTOP) == 0 && well;
  std::this_thread::sleep_for(time);
  for (const pid_t process : processes) well = ::kill(process, SIGCONT) == 0 && well;
  return well;
}

std::vector<pid_t> threads_of(pid_t process) {
  std::vector<pid_t> threads;
  DIR* folder = ::opendir(("/proc/" + std::to_string(process) + "/task").c_str());
  while (const dirent* entry = folder == nullptr ? nullptr : ::readdir(folder))
    if (const int thread = std::atoi(entry->d_name); thread > 0) threads.push_back(thread);
  if (folder != nullptr) ::closedir(folder);
  return threads;
}

// Traces a process, as an attached debugger does.
bool trace_for_a_while(pid_t process, std::chrono::milliseconds time) {
  const std::vector<pid_t> threads = threads_of(process);
  bool well = !threads.empty();
  for (const pid_t thread : threads) {
    well = ::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) == 0 && well;
    well = ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) == 0 && well;
    well = ::waitpid(thread, nullptr, __WALL) == thread && well;
  }
  std::this_thread::sleep_for(time);
  for (const pid_t thread : threads) well = ::ptrace(PTRACE_DETACH, thread, nullptr, nullptr) == 0 && well;
  return well;
}

// Rank 1 starts a process that runs `pause`. All ranks run collectives until it exits.
std::string work_beside(Rendezvous& rendezvous, const std::function<bool(const std::vector<pid_t>&)>& pause) {
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  auto group = rendezvous.group("dp", everyone(rendezvous));
  std::vector<pid_t> ranks;
  for (const std::string& id : rendezvous.exchange("id", std::to_string(::getpid())))
    ranks.push_back(std::stoi(id));
  // The first operation connects the ranks, so that the pause meets connected ranks.
  auto first = at::zeros({1000});
  group->all_reduce(first)->wait();
  const pid_t child = rendezvous.rank() == 1 ? ::fork() : -1;
  if (child == 0) ::_exit(pause(ranks) ? 0 : 1);
  int status = 0;
  for (bool over = false; !over;) {
    const bool ended = child > 0 && ::waitpid(child, &status, WNOHANG) == child;
    auto value = at::full({1000}, ended ? 1.0 : 0.0);
    group->all_reduce(value)->wait();
    over = value[999].item<float>() == 1;
    rendezvous.barrier("round");
  }
  return status == 0 ? "went on" : "the pause failed";
}

const Known kFirstRank("first_pauses", [](Rendezvous& rendezvous) {
  return work_beside(rendezvous, [](const auto& ranks) { return stop_for_a_while({ranks[0]}, kPause); });
});
const Known kLast("last_pauses", [](Rendezvous& rendezvous) {
  return work_beside(rendezvous, [](const auto& ranks) { return stop_for_a_while({ranks[2]}, kPause); });
});
const Known kTraced("last_is_traced", [](Rendezvous& rendezvous) {
  return work_beside(rendezvous, [](const auto& ranks) { return trace_for_a_while(ranks[2], kPause); });
});
const Known kAllRanks("all_pause", [](Rendezvous& rendezvous) {
  return work_beside(rendezvous, [](const auto& ranks) { return stop_for_a_while(ranks, 2 * kPause); });
});

class PausedRanks : public ::testing::TestWithParam<size_t> {
 protected:
  void expect_to_go_on(const std::string& body, std::chrono::milliseconds timeout) const {
    tests::expect_all_say(run_ranks(body, 3, {.timeout = timeout, .shared_memory = GetParam()}), 3,
                          "went on");
  }
};

TEST_P(PausedRanks, GoOnWhenOneWasStopped) {
  expect_to_go_on("first_pauses", std::chrono::minutes(1));
  expect_to_go_on("last_pauses", std::chrono::minutes(1));
}

TEST_P(PausedRanks, GoOnWhenOneWasTraced) {
  expect_to_go_on("last_is_traced", std::chrono::minutes(1));
}

// The pause is longer than the timeout, but no rank spent it waiting.
TEST_P(PausedRanks, GoOnWhenAllWereStopped) {
  expect_to_go_on("all_pause", std::chrono::seconds(7));
}

INSTANTIATE_TEST_SUITE_P(Transports, PausedRanks,
                         ::testing::Values(std::numeric_limits<size_t>::max(), size_t{0}),
                         [](const auto& given) {
                           return given.param == 0 ? std::string("Gloo") : std::string("SharedMemory");
                         });

}  // namespace
}  // namespace heddle

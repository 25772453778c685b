// One rank of a run: meeting the others, and parting from them.
#include "trainer/cli/ranks.h"

#include <ATen/Parallel.h>
#include <c10/util/Logging.h>
#include <pthread.h>
#include <signal.h>

#include <cstdlib>
#include <thread>

#include "heddle/base/error.h"
#include "heddle/mesh/gloo.h"
#include "trainer/cli/launch.h"

namespace heddle::cli {
namespace {

// LibTorch's own lines, with stack traces, stay away unless they are asked for: our errors say what they say.
void quiet_libtorch() {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") != nullptr) {
    c10::initLogging();
  } else {
    FLAGS_caffe2_log_level = c10::GLOG_FATAL;
  }
}

// A launcher that loses one rank sends SIGTERM to the others at once. They take the time to find out and to
// say which rank it was; end() by another thread is then the end.
void outlive_sigterm() {
  static constexpr std::chrono::seconds kTimeToSpeak{4};
  sigset_t terminate;
  sigemptyset(&terminate);
  sigaddset(&terminate, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &terminate, nullptr);  // in the threads made from here on as well
  std::thread([terminate] {
    int number = 0;
    ::sigwait(&terminate, &number);
    std::this_thread::sleep_for(kTimeToSpeak);
    launch::end(Error(ErrorCode::rank_lost, "launch", "this rank was ended by its launcher (SIGTERM)",
                      "see what the launcher says, and the other ranks"));
  }).detach();
}

int be_one(const RankPlace& place, std::chrono::milliseconds timeout,
           const std::function<int(Rendezvous&)>& body) {
  if (std::getenv("OMP_NUM_THREADS") == nullptr)
    at::set_num_threads(threads_per_rank(place.local_world_size));
  quiet_libtorch();
  if (place.launcher != "heddle" && place.world_size > 1) outlive_sigterm();
  const auto on_lost = [](const Error& error) { launch::end(error); };
  const auto meeting = mesh::join(place, {timeout, Log::to_stderr(place.rank), on_lost});
  try {
    const int status = body(*meeting);
    meeting->leave();
    return status;
  } catch (const Error& error) {
    meeting->abandon(error.message());
    throw;
  } catch (const std::exception& error) {
    meeting->abandon(error.what());
    throw;
  }
}

}  // namespace

RankPlan plan_ranks(std::optional<int> nproc_per_node) {
  RankPlan plan;
  plan.local_ranks = nproc_per_node.value_or(1);
  if (plan.local_ranks < 1) {
    throw Error(ErrorCode::usage, "--nproc-per-node",
                "is " + std::to_string(plan.local_ranks) + "; 1 or more is needed");
  }
  plan.place = place_from_environment();
  if (plan.place && plan.place->world_size == 1 && plan.local_ranks > 1) plan.place.reset();
  return plan;
}

int run_ranks(const RankPlan& plan, std::chrono::milliseconds timeout,
              const std::function<int(Rendezvous&)>& body) {
  const auto one = [&](const RankPlace& place) { return be_one(place, timeout, body); };
  if (plan.place && plan.place->world_size > 1) launch::be_rank(*plan.place, one);
  if (plan.world_size() == 1) return one(RankPlace{});
  return launch::run(plan.local_ranks, one);
}

}  // namespace heddle::cli

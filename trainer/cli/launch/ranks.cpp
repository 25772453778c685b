// Starts the ranks of a command by fork (launch.h), or joins as one rank of a launcher. Each rank runs the
// body with its Rendezvous, then leaves it.
#include "trainer/cli/launch/ranks.h"

#include <ATen/Parallel.h>
#include <c10/util/Logging.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>

#include "heddle/base/error.h"
#include "heddle/transport/join.h"
#include "trainer/cli/launch/crash.h"
#include "trainer/cli/launch/launch.h"
#include "trainer/cli/launch/messages.h"
#include "trainer/cli/launch/stop_signals.h"

namespace heddle::cli {
namespace {

// Suppresses LibTorch's own log lines and stack traces unless requested; heddle's errors contain the
// information.
void quiet_libtorch() {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") != nullptr) {
    c10::initLogging();
  } else {
    FLAGS_caffe2_log_level = c10::GLOG_FATAL;
  }
}

// Makes a run in this process exit with status 1 on signals that do not save, like a run of several ranks.
void end_on_signals(const std::vector<int>& saving) {
  for (const int number : {SIGINT, SIGTERM}) {
    if (std::count(saving.begin(), saving.end(), number) > 0) continue;
    ::signal(number, [](int) { launch::end_interrupted(); });
  }
}

// Blocks SIGTERM: a launcher that loses one rank sends SIGTERM to the others at once. The other ranks first
// find out and report which rank was lost; end() on another thread then exits.
void outlive_sigterm() {
  static constexpr std::chrono::seconds kTimeToSpeak{4};
  sigset_t terminate;
  sigemptyset(&terminate);
  sigaddset(&terminate, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &terminate, nullptr);  // applies to threads created later too
  std::thread([terminate] {
    int number = 0;
    ::sigwait(&terminate, &number);
    std::this_thread::sleep_for(kTimeToSpeak);
    launch::end(Error(ErrorCode::rank_lost, "launch", "this rank was stopped by its launcher (SIGTERM)",
                      "see the output of the launcher and of the other ranks"));
  }).detach();
}

// Exits this rank because a signal stopped another rank before its first step.
[[noreturn]] void end_with_rank(int rank, int own_rank, int signal, const launch::Stop& stop) {
  // A rank's own stop comes back to it, but listen() has printed that line.
  if (rank != own_rank)
    launch::write_message("rank " + std::to_string(rank) + " was " + stopped_before_the_first_step(signal) +
                          "\n");
  ::_exit(stop.status_of(signal));
}

int run_body(const RankPlace& place, GlooOptions options, const std::function<int(Rendezvous&)>& body,
             std::shared_ptr<mesh::Meeting> meeting = nullptr) {
  const launch::ExitGuard guard;
  launch::name_crashes(place.rank);
  quiet_libtorch();
  // OMP_NUM_THREADS takes precedence; else the ranks of a machine share its cores.
  if (std::getenv("OMP_NUM_THREADS") == nullptr)
    at::set_num_threads(threads_per_rank(place.local_world_size));
  options.log = launch::log_of(place.rank);
  options.on_lost = [](const Error& error) { launch::end(error); };
  const auto rendezvous = mesh::join(place, options, std::move(meeting));
  try {
    const int status = body(*rendezvous);
    rendezvous->leave();
    return status;
  } catch (const std::exception& thrown) {
    const Error error = launch::as_error(thrown);
    rendezvous->abandon(error.where() + ": " + error.message());
    // Only rank 0 writes files, so it reports the error once.
    if (error.code() == ErrorCode::io && place.rank != 0) return exit_status(error.code());
    throw error;
  }
}

}  // namespace

// Returns the place of this rank. A rank with an invalid environment reports the error to the others through
// their rendezvous.
std::optional<RankPlace> own_rank_place() {
  try {
    return place_from_environment();
  } catch (const Error& error) {
    const char *host = std::getenv("MASTER_ADDR"), *port = std::getenv("MASTER_PORT");
    RankPlace place;
    place.port = port == nullptr ? 0 : std::atoi(port);
    const bool is_address = error.where() != "environment MASTER_ADDR";
    if (host == nullptr || place.port < 1 || place.port > 65535 || !is_address) throw;
    // Rank 0 serves its error to the others; another rank's number may itself be invalid.
    const char* rank = std::getenv("RANK");
    place.rank = rank != nullptr && std::string_view(rank) == "0" ? 0 : -1;
    place.world_size = 2, place.host = host;
    if (const char* attempt = std::getenv("TORCHELASTIC_RESTART_COUNT")) place.session = attempt;
    const char* served = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
    place.store_served = served != nullptr && std::string_view(served) == "True";
    throw mesh::Meeting(place).refuse(error);
  }
}

RankPlan plan_ranks(std::optional<int> nproc_per_node, int max_restarts) {
  RankPlan plan;
  plan.local_ranks = nproc_per_node.value_or(1);
  plan.restarts = max_restarts > 0;
  if (plan.local_ranks < 1) {
    throw Error(ErrorCode::usage, "--nproc-per-node",
                "is " + std::to_string(plan.local_ranks) + "; it must be 1 or more");
  }
  plan.place = own_rank_place();
  plan.is_launched = plan.place || std::getenv("SLURM_JOB_ID") != nullptr;
  if (plan.place && plan.place->world_size == 1) plan.place.reset();  // a single rank has no peers
  const bool has_wrong_options = nproc_per_node || plan.restarts;     // not allowed under a launcher
  if (plan.place) {
    if (!has_wrong_options) hold_signals();
    plan.meeting = std::make_shared<mesh::Meeting>(*plan.place);
  }
  if (plan.place && nproc_per_node) {
    throw plan.meeting->refuse(Error(ErrorCode::usage, "--nproc-per-node",
                                     "is given, but " + plan.place->launcher + " has already started " +
                                         std::to_string(plan.place->world_size) + " ranks",
                                     "remove --nproc-per-node under a launcher"));
  }
  if (plan.place && plan.restarts) {
    throw plan.meeting->refuse(
        Error(ErrorCode::usage, "heddle train",
              "--max-restarts is given, but " + plan.place->launcher + " starts the ranks",
              "use torchrun's own --max-restarts, or Slurm's --requeue"));
  }
  return plan;
}

int run_or_tell_others(const RankPlan& plan, const std::function<int()>& work) {
  try {
    return work();
  } catch (const std::exception& thrown) {
    if (!plan.meeting) throw;
    const auto* error = dynamic_cast<const Error*>(&thrown);
    throw plan.meeting->refuse(error == nullptr ? launch::as_error(thrown) : *error);
  }
}

int run_ranks(const RankPlan& plan, std::chrono::milliseconds timeout,
              const std::function<int(Rendezvous&)>& body, const launch::Stop& stop,
              std::chrono::milliseconds heartbeat) {
  const bool by_term = std::count(stop.signals.begin(), stop.signals.end(), SIGTERM) > 0;
  GlooOptions options{.timeout = timeout, .heartbeat = heartbeat};
  if (plan.place) {
    if (stop.tell)
      options.on_stopped = [&stop, own_rank = plan.place->rank](int rank, int signal) {
        end_with_rank(rank, own_rank, signal, stop);
      };
    // ends the process
    launch::be_rank(*plan.place, [&](const RankPlace& place) {
      if (!by_term) outlive_sigterm();
      return run_body(place, options, body, plan.meeting);
    });
  }
  const bool alone = plan.local_ranks == 1 && !plan.restarts;
  const auto listen_and_run = [&](const RankPlace& place) {
    listen(stop, alone ? SignalRole::whole : SignalRole::rank);
    return run_body(place, options, body);
  };
  if (!alone) return launch::run(plan.local_ranks, listen_and_run, {}, stop);  // forks each rank
  end_on_signals(stop.signals);
  return listen_and_run(RankPlace{});
}

}  // namespace heddle::cli

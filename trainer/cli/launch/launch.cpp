// Forks ranks, forwards signals, and collects exit statuses.
#include "trainer/cli/launch/launch.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "trainer/cli/launch/messages.h"
#include "trainer/cli/launch/shared_memory.h"
#include "trainer/cli/launch/stop_signals.h"

namespace heddle::launch {
namespace {

using Clock = std::chrono::steady_clock;

// Set when this rank's body has returned; shared with the launcher.
std::atomic<bool>* returned = nullptr;

std::string reason() {
  return std::strerror(errno);
}

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::internal, "launch", what + ": " + reason());
}

// A socket that listens on a free port of the loopback address. Rank 0 inherits it, so no other process can
// take the port meanwhile.
struct Listener {
  int fd = -1, port = 0;

  Listener() {
    fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) fail("no socket for the ranks to meet");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    if (::bind(fd, raw, length) != 0 || ::listen(fd, SOMAXCONN) != 0 ||
        ::getsockname(fd, raw, &length) != 0) {
      ::close(fd);
      fail("no port for the ranks to meet");
    }
    port = ntohs(address.sin_port);
  }
  ~Listener() { ::close(fd); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
};

// Signals that this process receives synchronously while its ranks run.
class Signals {
 public:
  explicit Signals(const std::vector<int>& stop) {
    ::signal(SIGCHLD, SIG_DFL);  // an inherited SIG_IGN would discard the exit statuses of ranks
    sigemptyset(&taken_);
    sigemptyset(&stop_);
    for (const int number : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&taken_, number);
    for (const int number : stop) {
      sigaddset(&taken_, number);
      sigaddset(&stop_, number);
    }
    struct sigaction hangup {};
    ::sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) sigaddset(&taken_, SIGHUP);  // nohup: SIGHUP stays ignored
    ::sigprocmask(SIG_BLOCK, &taken_, &before_);
  }
  ~Signals() { restore(); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  void restore() const { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  // Called in a rank, whose own thread takes the signals that request a save.
  void restore_all_but_stop() const {
    restore();
    ::sigprocmask(SIG_BLOCK, &stop_, nullptr);
  }
  bool is_stop(int number) const { return sigismember(&stop_, number) == 1; }

  // Returns the next signal, or 0 after `most`.
  int next(std::chrono::milliseconds most, siginfo_t& info) const {
    const timespec wait{most.count() / 1000, most.count() % 1000 * 1000000};
    return std::max(0, ::sigtimedwait(&taken_, &info, &wait));
  }

 private:
  sigset_t taken_, stop_, before_;
};

[[noreturn]] void child(const RankPlace& place, const Body& body, pid_t parent, const Signals& signals) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // the parent died before prctl()
  signals.restore_all_but_stop();
  speak_as_rank();
  be_rank(place, body);
}

// The rank processes of a run.
class Ranks {
 public:
  Ranks(Patience patience, Stop stop) : patience_(patience), stop_(std::move(stop)) {}

  void start(int ranks, const Body& body, const Signals& signals) {
    const Listener listener;
    const pid_t self = ::getpid();
    print_equal_errors_once();
    returned_ = static_cast<std::atomic<bool>*>(
        shared_memory(static_cast<size_t>(ranks) * sizeof(std::atomic<bool>)));
    std::cout.flush();
    std::fflush(nullptr);
    for (int rank = 0; rank < ranks; ++rank) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        RankPlace place;
        place.rank = place.local_rank = rank;
        place.world_size = place.local_world_size = ranks;
        place.port = listener.port;
        place.launcher = "heddle";
        if (rank == 0) place.listen_fd = listener.fd;
        if (rank != 0) ::close(listener.fd);
        returned = returned_ + rank;
        child(place, body, self, signals);
      }
      if (pid < 0) {
        const std::string why = reason();
        kill_all(SIGKILL);
        while (alive() > 0) collect(0);
        throw Error(ErrorCode::internal, "launch",
                    "rank " + std::to_string(rank) + " cannot be started: " + why);
      }
      pids_.push_back(pid);
    }
  }

  int watch(const Signals& signals) {
    while (collect(WNOHANG), alive() > 0) {
      siginfo_t info{};
      const int number = signals.next(std::chrono::milliseconds(deadline_set_ ? 100 : 60000), info);
      if (number != 0 && number != SIGCHLD) signals.is_stop(number) ? ask_to_stop(info) : pass_on(info);
      if (deadline_set_ && !killed_ && Clock::now() >= deadline_) kill_stragglers();
    }
    return early_ ? stop_.status_of(stop_.request->signal) : status_;
  }

 private:
  int alive() const {
    return static_cast<int>(std::count_if(pids_.begin(), pids_.end(), [](pid_t p) { return p > 0; }));
  }

  void kill_all(int number) {
    killed_ = killed_ || number == SIGKILL;
    for (const pid_t pid : pids_) {
      if (pid > 0) ::kill(pid, number);
    }
  }

  void kill_stragglers() {
    std::string list;
    for (size_t rank = 0; rank < pids_.size(); ++rank) {
      if (pids_[rank] > 0) list += (list.empty() ? "" : ", ") + std::to_string(rank);
    }
    kill_all(SIGKILL);
    say(Error(ErrorCode::rank_lost, "launch", "rank " + list + " did not exit by itself and was killed"));
  }

  void end_within(std::chrono::milliseconds time) {
    const auto deadline = Clock::now() + time;
    if (deadline_set_ && deadline_ < deadline) return;
    deadline_set_ = true;
    deadline_ = deadline;
  }

  // Stores the request for all ranks of this machine; before their first step there is nothing to save.
  void ask_to_stop(const siginfo_t& info) {
    const int number = info.si_signo;
    const bool another = repeats_.is_another();
    if (interrupted_) {
      if (another) end_at_once();
      return;
    }
    interrupted_ = true;
    stop_.request->from_terminal = info.si_code == SI_KERNEL;
    stop_.request->signal = number;
    if (!stop_.request->stepping) {
      early_ = status_ == 0;
      kill_all(SIGKILL);
      if (!early_) return;
      write_all(STDOUT_FILENO, cli::stopped_before_the_first_step(number) + "\n");
      return;
    }
    write_message(cli::stop_heard(number) + "\n");
  }

  void end_at_once() {
    kill_all(SIGKILL);
    status_ = 1;
    say(Error(ErrorCode::rank_lost, "launch", "stopped by a second signal; no checkpoint was written"));
  }

  void pass_on(const siginfo_t& info) {
    if (interrupted_) return kill_all(SIGKILL);
    interrupted_ = true;
    if (stop_.request != nullptr)
      stop_.request->signal = info.si_signo;  // the sender knows why the ranks exit
    status_ = 1;
    say(Error(ErrorCode::rank_lost, "launch", "interrupted by a signal"));
    // A terminal sends its signal to the whole process group, including the ranks.
    if (info.si_code != SI_KERNEL) kill_all(SIGTERM);
    end_within(patience_.after_signal);
  }

  void collect(int how) {
    for (size_t rank = 0; rank < pids_.size(); ++rank) {
      int state = 0;
      if (pids_[rank] <= 0 || ::waitpid(pids_[rank], &state, how) != pids_[rank]) continue;
      pids_[rank] = 0;
      ended(static_cast<int>(rank), state);
    }
  }

  void ended(int rank, int state) {
    const bool left = WIFEXITED(state) && !returned_[rank] && WEXITSTATUS(state) == 0;
    const int status = WIFEXITED(state) && !left ? known(WEXITSTATUS(state)) : 1;
    status_ = worse(status_, status);
    if (left)
      say(Error(ErrorCode::rank_lost, "launch",
                "rank " + std::to_string(rank) + " exited with status 0 before its work was done",
                "a plugin or a library called _exit(); a plugin must report errors by throwing "
                "heddle::Error and must not exit the process"));
    if (status != 1 && status != 2) return;
    if (WIFSIGNALED(state) && !interrupted_ && !killed_) {
      const int number = WTERMSIG(state);
      say(Error(ErrorCode::rank_lost, "launch",
                "rank " + std::to_string(rank) + " was killed by signal " + std::to_string(number) + " (" +
                    strsignal(number) + ")",
                number == SIGKILL ? "the kernel kills processes when memory runs out; see dmesg" : ""));
    }
    end_within(patience_.after_failure);
  }

  const Patience patience_;
  const Stop stop_;
  std::vector<pid_t> pids_;                // 0: exited
  std::atomic<bool>* returned_ = nullptr;  // indexed by rank
  int status_ = 0;
  bool interrupted_ = false, killed_ = false, deadline_set_ = false;
  bool early_ = false;  // no rank had begun its first step, so nothing was lost
  Repeats repeats_;
  Clock::time_point deadline_;
};

}  // namespace

int run(int ranks, const Body& body, Patience patience, Stop stop) {
  const Signals signals(stop.signals);
  Ranks processes(patience, std::move(stop));
  processes.start(ranks, body, signals);
  const int status = processes.watch(signals);
  if (status == 1 || status == 2)
    answer(Error(ErrorCode::rank_lost, "launch", "a rank was lost", "see standard error for the cause"));
  return status;
}

void be_rank(const RankPlace& place, const Body& body) {
  try {
    const int status = body(place);
    if (status == 0) finish_output();
    std::cout.flush();
    if (returned != nullptr) *returned = true;
    ::_exit(status);
  } catch (const std::exception& error) {
    std::cout.flush();
    std::fflush(stdout);
    end(error);
  } catch (...) {
    end(Error(ErrorCode::internal, "heddle", "an exception of unknown type was thrown"));
  }
}

}  // namespace heddle::launch

// Forking ranks, passing signals on, and collecting what is left of them.
#include "trainer/cli/launch.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
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
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/error.h"

namespace heddle::launch {
namespace {

using Clock = std::chrono::steady_clock;

std::string reason() {
  return std::strerror(errno);
}

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::internal, "launch", what + ": " + reason());
}

void write_all(int file, std::string_view text) {
  [[maybe_unused]] const auto written = ::write(file, text.data(), text.size());
}

// In memory that the ranks share: whether one of them has answered. Null: JSON is not asked for.
std::atomic<bool>* answered = nullptr;
bool is_forked_rank = false;

void answer(const Error& error) {
  if (answered != nullptr && !answered->exchange(true)) write_all(STDOUT_FILENO, error.json() + "\n");
}

// One write, so that the blocks of several ranks do not mix. A rank that lost another leaves the answer to
// that one, or to the launcher.
void say(const Error& error) {
  write_all(STDERR_FILENO, std::string(error.what()) + "\n");
  if (!is_forked_rank || error.code() != ErrorCode::rank_lost) answer(error);
}

void say(const std::exception& error) {
  const auto* own = dynamic_cast<const Error*>(&error);
  say(own != nullptr ? *own : Error(ErrorCode::internal, "heddle", error.what()));
}

// Listening on a free port of the loopback address. Rank 0 inherits it, so nobody can take the port in
// between.
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

// Signals that this process takes one by one while its ranks run.
class Signals {
 public:
  Signals() {
    ::signal(SIGCHLD, SIG_DFL);  // an inherited "ignore" would take the ranks' statuses away
    sigemptyset(&taken_);
    for (const int number : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&taken_, number);
    struct sigaction hangup {};
    ::sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) sigaddset(&taken_, SIGHUP);  // under nohup it stays ignored
    ::sigprocmask(SIG_BLOCK, &taken_, &before_);
  }
  ~Signals() { restore(); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  void restore() const { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

  // The next signal, or 0 after `most`.
  int next(std::chrono::milliseconds most, siginfo_t& info) const {
    const timespec wait{most.count() / 1000, most.count() % 1000 * 1000000};
    return std::max(0, ::sigtimedwait(&taken_, &info, &wait));
  }

 private:
  sigset_t taken_, before_;
};

[[noreturn]] void leave(int status) {
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(status);
}

[[noreturn]] void child(const RankPlace& place, const Body& body, pid_t parent, const Signals& signals) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it died before the line above
  signals.restore();
  is_forked_rank = true;
  be_rank(place, body);
}

// The processes of one run, by rank.
class Ranks {
 public:
  explicit Ranks(Patience patience) : patience_(patience) {}

  void start(int ranks, const Body& body, const Signals& signals) {
    const Listener listener;
    const pid_t self = ::getpid();
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
      if (number != 0 && number != SIGCHLD) pass_on(info);
      if (deadline_set_ && !killed_ && Clock::now() >= deadline_) kill_stragglers();
    }
    return status_;
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
    say(Error(ErrorCode::rank_lost, "launch", "rank " + list + " did not end by itself and was killed"));
  }

  void end_within(std::chrono::milliseconds time) {
    const auto deadline = Clock::now() + time;
    if (deadline_set_ && deadline_ < deadline) return;
    deadline_set_ = true;
    deadline_ = deadline;
  }

  void pass_on(const siginfo_t& info) {
    if (interrupted_) return kill_all(SIGKILL);
    interrupted_ = true;
    status_ = 1;
    say(Error(ErrorCode::rank_lost, "launch", "interrupted by a signal"));
    // A terminal sends its signal to the whole process group, ranks included.
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
    int status = WIFEXITED(state) ? WEXITSTATUS(state) : 1;
    if (status > 2) status = 1;
    if (status == 0) return;
    if (WIFSIGNALED(state) && !interrupted_ && !killed_) {
      const int number = WTERMSIG(state);
      say(Error(ErrorCode::rank_lost, "launch",
                "rank " + std::to_string(rank) + " was killed by signal " + std::to_string(number) + " (" +
                    strsignal(number) + ")",
                number == SIGKILL ? "the system kills processes when memory runs out: see dmesg" : ""));
    }
    if (status_ == 0) status_ = status;
    end_within(patience_.after_failure);
  }

  const Patience patience_;
  std::vector<pid_t> pids_;  // 0: ended
  int status_ = 0;
  bool interrupted_ = false, killed_ = false, deadline_set_ = false;
  Clock::time_point deadline_;
};

}  // namespace

int run(int ranks, const Body& body, Patience patience) {
  const Signals signals;
  Ranks processes(patience);
  processes.start(ranks, body, signals);
  const int status = processes.watch(signals);
  if (status != 0)
    answer(Error(ErrorCode::rank_lost, "launch", "a rank was lost", "the cause stands on standard error"));
  return status;
}

void be_rank(const RankPlace& place, const Body& body) {
  try {
    leave(body(place));
  } catch (const std::exception& error) {
    std::cout.flush();
    std::fflush(stdout);
    end(error);
  } catch (...) {
    end(Error(ErrorCode::internal, "heddle", "something unknown was thrown"));
  }
}

void end(const std::exception& error) {
  static std::atomic<bool> ending = false;
  if (ending.exchange(true)) {
    for (;;) ::pause();  // another thread is printing its block and ends the process
  }
  say(error);
  const auto* own = dynamic_cast<const Error*>(&error);
  ::_exit(own ? exit_status(own->code()) : 1);  // no flush: another thread may hold a stream
}

void end_interrupted() {
  write_all(STDERR_FILENO, "error[rank_lost] launch: interrupted by a signal\n");
  if (answered != nullptr)
    write_all(STDOUT_FILENO,
              "{\"error\": {\"code\": \"rank_lost\", \"where\": \"launch\", \"what\": \"interrupted by a "
              "signal\", \"hint\": \"\"}}\n");
  ::_exit(1);
}

void answer_in_json() {
  void* shared =
      ::mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) fail("no memory that the ranks share");
  answered = new (shared) std::atomic<bool>(false);
}

}  // namespace heddle::launch

// Creates namespaces and starts processes in them.
#include "host.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace hosts {
namespace {

constexpr int kAllNamespaces = CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNS;

[[noreturn]] void fail(const std::string& action) {
  throw std::runtime_error("cannot " + action + ": " + std::strerror(errno));
}

void write_line(const char* file, const std::string& line) {
  const int out = ::open(file, O_WRONLY | O_CLOEXEC);
  if (out < 0) fail(std::string("open ") + file);
  const ssize_t written = ::write(out, line.data(), line.size());
  ::close(out);
  if (written != static_cast<ssize_t>(line.size())) fail(std::string("write ") + file);
}

void set_up_host(const std::string& name) {
  if (::sethostname(name.data(), name.size()) != 0) fail("set the name of a host");
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) fail("separate the mounts of a host");
  if (::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0)
    fail("mount /proc of a host");
  if (::mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, nullptr) != 0)
    fail("mount /dev/shm of a host");
}

// First process of a host: sets up the namespaces, writes the error or nothing to `report`, and waits.
[[noreturn]] void be_first_process(const std::string& name, int report) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGCHLD, SIG_IGN);  // orphaned processes are reaped
  std::string error;
  try {
    set_up_host(name);
  } catch (const std::exception& thrown) {
    error = thrown.what();
  }
  if (!error.empty() && ::write(report, error.data(), error.size()) < 0) ::_exit(1);
  ::close(report);
  const int null = ::open("/dev/null", O_RDWR);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, stream);
  ::close_range(3, ~0u, 0);
  if (!error.empty()) ::_exit(1);
  while (true) ::pause();
}

std::string read_to_end(int file) {
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = ::read(file, buffer, sizeof buffer)) > 0;) text.append(buffer, count);
  return text;
}

[[noreturn]] void execute(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

void redirect(int stream, const std::filesystem::path& file) {
  if (::dup2(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), stream) < 0) ::_exit(126);
}

}  // namespace

void continue_in_user_namespace() {
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) fail("create a user namespace");
  write_line("/proc/self/setgroups", "deny");
  write_line("/proc/self/uid_map", "0 " + std::to_string(user) + " 1");
  write_line("/proc/self/gid_map", "0 " + std::to_string(group) + " 1");
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    return;
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ::_exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

Host::Host(std::string name) : name_(std::move(name)) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail("create a pipe");
  first_ = static_cast<pid_t>(::syscall(SYS_clone, kAllNamespaces | SIGCHLD, nullptr, nullptr, nullptr, 0));
  if (first_ == 0) be_first_process(name_, ends[1]);
  const int error = errno;
  ::close(ends[1]);
  const std::string report = first_ > 0 ? read_to_end(ends[0]) : "";
  ::close(ends[0]);
  errno = error;
  if (first_ < 0) fail("create namespaces");
  handle_ = static_cast<int>(::syscall(SYS_pidfd_open, first_, 0));
  if (report.empty() && handle_ >= 0) return;
  ::waitpid(first_, nullptr, 0);
  throw std::runtime_error(report.empty() ? "cannot open the first process of a host" : report);
}

Host::~Host() {
  ::kill(first_, SIGKILL);  // the kernel kills the other processes of the namespace
  ::waitpid(first_, nullptr, 0);
  ::close(handle_);
}

pid_t Host::fork_inside(int namespaces) const {
  static const int own_processes = ::open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
  // A process enters the PID namespace at its creation, and the other namespaces later.
  const bool among_processes = (namespaces & CLONE_NEWPID) != 0;
  if (among_processes && ::setns(handle_, CLONE_NEWPID) != 0) fail("enter the processes of " + name_);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setns(handle_, namespaces & ~CLONE_NEWPID) != 0) ::_exit(125);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    return 0;
  }
  const int error = errno;
  if (among_processes && ::setns(own_processes, CLONE_NEWPID) != 0) fail("return to the own processes");
  errno = error;
  if (child < 0) fail("fork");
  return child;
}

void Host::run_shell(const std::string& shell, int namespaces) const {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail("create a pipe");
  const pid_t child = fork_inside(namespaces);
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    execute({"/bin/sh", "-ec", shell});
  }
  ::close(ends[1]);
  const std::string output = read_to_end(ends[0]);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status != 0) throw std::runtime_error("'" + shell + "' failed on " + name_ + ": " + output);
}

void Host::command(const std::string& shell) const {
  run_shell(shell, kAllNamespaces);
}

void Host::network_command(const std::string& shell) const {
  run_shell(shell, CLONE_NEWNET);
}

pid_t Host::start(const std::vector<std::string>& words, const Variables& variables,
                  const std::filesystem::path& output, const std::filesystem::path& errors) const {
  const pid_t child = fork_inside(kAllNamespaces);
  if (child != 0) return child;
  ::setpgid(0, 0);
  for (const int number : {SIGHUP, SIGINT, SIGTERM}) ::signal(number, SIG_DFL);  // nohup ignores some
  redirect(STDOUT_FILENO, output);
  redirect(STDERR_FILENO, errors);
  for (const char* name : {"GLOO_SOCKET_IFNAME", "HEDDLE_PLUGIN_PATH"}) ::unsetenv(name);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  execute(words);
}

void Host::signal_all(int number) const {
  const pid_t child = fork_inside(CLONE_NEWPID | CLONE_NEWUTS);
  if (child == 0) {
    ::kill(-1, number);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
}

}  // namespace hosts

// A simulated host made of Linux namespaces.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace hosts {

using Variables = std::map<std::string, std::string>;  // environment variables

// Network, PID, UTS, IPC and mount namespaces with their own /proc and /dev/shm. The file system is shared
// with this machine. The namespaces are unnamed and end with their processes, so a crash of the test program
// leaves nothing behind. Linux only. Not thread-safe.
class Host {
 public:
  // Throws std::runtime_error with the reason if the system does not permit namespaces.
  explicit Host(std::string name);
  ~Host();  // kills every process of the host; reap those of start() before
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const std::string& name() const { return name_; }
  // Process id of the host's first process on this machine.
  pid_t first_process() const { return first_; }

  // Runs a shell command as root of the host. Throws std::runtime_error with the command's output if it
  // fails.
  void command(const std::string& shell) const;
  // Runs a shell command in the host's network namespace only. Process ids and files are those of this
  // machine.
  void network_command(const std::string& shell) const;
  // Starts a program with stdout and stderr redirected to files. The environment is this program's,
  // overridden by `variables`. Returns the process id on this machine.
  pid_t start(const std::vector<std::string>& words, const Variables& variables,
              const std::filesystem::path& output, const std::filesystem::path& errors) const;
  // Sends a signal to all processes of the host except its first one.
  void signal_all(int number) const;

 private:
  // Forks a process into some of the host's namespaces. Returns twice, like fork().
  pid_t fork_inside(int namespaces) const;
  void run_shell(const std::string& shell, int namespaces) const;

  const std::string name_;
  pid_t first_ = -1;
  int handle_ = -1;  // pidfd of the first process
};

// Lets a program without root privileges create hosts: it continues in a child process with its own user and
// PID namespaces, and this process exits with the child's status. Throws std::runtime_error with the reason
// if the system does not permit namespaces.
void continue_in_user_namespace();

}  // namespace hosts

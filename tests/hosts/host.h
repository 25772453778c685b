// A host made of Linux namespaces.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace hosts {

using Variables = std::map<std::string, std::string>;  // environment variables

// Namespaces of network, processes, host name, IPC and mounts, with a /proc and a /dev/shm of their own.
// Files are those of this machine. The namespaces have no names and end with their processes, so nothing is
// left behind, also when the test program crashes. Linux only; used by one thread.
class Host {
 public:
  // Throws std::runtime_error with the reason if the system does not permit the namespaces.
  explicit Host(std::string name);
  ~Host();  // kills every process of the host; those of start() are reaped before
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const std::string& name() const { return name_; }
  // The host's first process, by its number on this machine.
  pid_t first_process() const { return first_; }

  // Runs a shell command as root of the host. Throws std::runtime_error with the command's output if it
  // fails.
  void command(const std::string& shell) const;
  // Runs a shell command in the host's network only: numbers of processes and files are those of this
  // machine.
  void network_command(const std::string& shell) const;
  // Starts a program with its output and its errors in files. The environment is this program's, changed by
  // `variables`. Returns the number of the process on this machine.
  pid_t start(const std::vector<std::string>& words, const Variables& variables,
              const std::filesystem::path& output, const std::filesystem::path& errors) const;
  // Sends a signal to all processes of the host except its first one.
  void signal_all(int number) const;

 private:
  // Forks a process into some of the host's namespaces. Returns twice, as fork().
  pid_t fork_inside(int namespaces) const;
  void run_shell(const std::string& shell, int namespaces) const;

  const std::string name_;
  pid_t first_ = -1;
  int handle_ = -1;  // pidfd of the first process
};

// Gives a program without the rights of root the rights to make hosts: it continues in a child process with a
// user namespace and a PID namespace of its own, and this process ends with the child's status. Throws
// std::runtime_error with the reason if the system does not permit the namespaces.
void continue_in_user_namespace();

}  // namespace hosts

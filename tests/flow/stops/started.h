// A program that runs concurrently with the test.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "flow/program.h"

namespace flow {

// `heddle` with these arguments, in its own process group.
class Started {
 public:
  explicit Started(const std::vector<std::string>& words, const std::vector<std::string>& environment = {});
  ~Started();  // kills the rest of the group
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;

  pid_t pid() const { return pid_; }
  std::vector<pid_t> children() const;
  std::string output() const;  // so far
  std::string errors() const;  // so far, on standard error
  Outcome wait();

 private:
  std::filesystem::path folder_;
  pid_t pid_ = -1;
};

// Repeats the question for up to a minute, until it returns true. Returns false if it never does.
bool eventually(const std::function<bool()>& question);

// Variables that torchrun, srun or mpirun sets for a rank of one machine.
Words place(int rank, int ranks);

// Runs a shell command, for settings that only a shell has (limits, traps).
Outcome shell(const std::string& command);

bool is_alive(pid_t pid);
std::string read_text(const std::filesystem::path& file);

}  // namespace flow

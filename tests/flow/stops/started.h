// A program that runs while the test goes on.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "flow/program.h"

namespace flow {

// `heddle` with these words, in a process group of its own.
class Started {
 public:
  explicit Started(const std::vector<std::string>& words, const std::vector<std::string>& environment = {});
  ~Started();  // ends what is left of the group
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

// Asks again and again, for a minute at most, until the answer is yes; false when it never was.
bool eventually(const std::function<bool()>& question);

// What torchrun, srun or mpirun sets for a rank of one machine.
Words place(int rank, int ranks);

// A shell's words, for what only a shell can set (limits, traps).
Outcome shell(const std::string& command);

bool is_alive(pid_t pid);
std::string read_text(const std::filesystem::path& file);

}  // namespace flow

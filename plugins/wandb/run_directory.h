// The directory of one run beside those that W&B writes offline, with JSON in place of W&B's binary log.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace heddle::wandb {

constexpr const char* kHistory = "history.jsonl";

// The directory of the run with this id, the newest of several; empty: there is none.
std::filesystem::path find_run(const std::filesystem::path& runs, const std::string& id);

// All throw Error{io}.
class RunDirectory {
 public:
  // Makes it where it is not there.
  explicit RunDirectory(std::filesystem::path path);
  const std::filesystem::path& path() const { return path_; }

  // A whole file; one that is there is replaced.
  void write(const std::string& name, const std::string& text) const;
  // A line of the history in one write, so that a process that is killed leaves whole lines.
  void append(const std::string& line) const;
  // Takes away the lines of this step and later ones, and one that was cut.
  void keep_before(int64_t step) const;

 private:
  std::filesystem::path path_;
};

}  // namespace heddle::wandb

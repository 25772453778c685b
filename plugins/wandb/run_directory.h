// Directory of a run beside those that W&B writes offline, with JSON instead of W&B's binary log.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace heddle::wandb {

constexpr const char* kHistory = "history.jsonl";

// Returns the newest directory of the run with this id. Empty if there is none.
std::filesystem::path find_run(const std::filesystem::path& runs, const std::string& id);

// All members throw Error{io}.
class RunDirectory {
 public:
  // Creates the directory if it does not exist.
  explicit RunDirectory(std::filesystem::path path);
  const std::filesystem::path& path() const { return path_; }

  // Writes a whole file. An existing file is replaced.
  void write(const std::string& name, const std::string& text) const;
  // Appends a line to the history in one write, so that a killed process leaves whole lines.
  void append(const std::string& line) const;
  // Removes the lines of this step and later steps, and an incomplete last line.
  void keep_before(int64_t step) const;

 private:
  std::filesystem::path path_;
};

}  // namespace heddle::wandb

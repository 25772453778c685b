// One run at a time in a directory of checkpoints.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace heddle {

// A lock on DIRECTORY/.lock, which ends with the process, however that ends. The file says who holds it.
class RunLock {
 public:
  // Throws Error{config} when another run holds it.
  explicit RunLock(const std::filesystem::path& directory);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // False where the file cannot be made, or the file system knows no locks: nobody was asked.
  bool is_held() const { return held_; }

 private:
  int file_ = -1;
  bool held_ = false;
};

inline constexpr const char* kRunLock = ".lock";  // in the directory of checkpoints
// Whether a file says who holds such a lock, or held it.
bool is_run_lock(const std::filesystem::path& file);

// Throws Error{config} where LATEST names another checkpoint than `latest`.
void refuse_if_saved_since(const std::filesystem::path& directory, const std::string& latest);

// Asks for the lock without taking it: throws Error{config} when a run still holds it after `patience`, as
// the processes of a run that was killed take their time to go. Before the checkpoints there are looked at,
// as a run that saves there removes them while they are read.
void refuse_where_a_run_saves(const std::filesystem::path& directory,
                              std::chrono::milliseconds patience = std::chrono::seconds(5));

}  // namespace heddle

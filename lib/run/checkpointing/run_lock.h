// Lock that admits one run at a time to checkpoint_dir.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace heddle {

// Lock on DIRECTORY/.lock, released when the process ends in any way. The file names the holder.
class RunLock {
 public:
  // Throws Error{config} if another run holds the lock.
  explicit RunLock(const std::filesystem::path& directory);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // False if the file cannot be created or the file system has no locks: other runs are not excluded.
  bool is_held() const { return held_; }

 private:
  int file_ = -1;
  bool held_ = false;
};

inline constexpr const char* kRunLock = ".lock";  // in checkpoint_dir
// Whether the contents of a file name a current or former holder of such a lock.
bool is_run_lock(const std::filesystem::path& file);

// Throws Error{config} if LATEST no longer names the checkpoint `latest`.
void refuse_if_saved_since(const std::filesystem::path& directory, const std::string& latest);

// Throws Error{config} if a run still holds the lock after `patience`; does not take the lock. The processes
// of a killed run take some time to exit. Called before the checkpoints are read, because a running run
// removes checkpoints meanwhile.
void refuse_where_a_run_saves(const std::filesystem::path& directory,
                              std::chrono::milliseconds patience = std::chrono::seconds(5));

}  // namespace heddle

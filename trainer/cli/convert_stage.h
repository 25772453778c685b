// Where a conversion is put together: one process at a time for one destination.
#pragma once

#include <filesystem>

namespace heddle::cli {

// The stage of a directory (see publish.h), locked as long as this lives and empty at the beginning: what an
// interrupted conversion has left goes. On one rank.
class ConvertStage {
 public:
  // Throws Error{usage} when another process holds it or the destination is there and not empty, Error{io}.
  explicit ConvertStage(std::filesystem::path destination);
  ~ConvertStage();  // without publish(): the stage is removed
  ConvertStage(const ConvertStage&) = delete;
  ConvertStage& operator=(const ConvertStage&) = delete;

  void publish();

 private:
  bool lock();

  std::filesystem::path destination_, stage_;
  int file_ = -1;
  bool published_ = false;
};

// Throws Error{usage} when the destination is there and not empty.
void check_free(const std::filesystem::path& destination);

}  // namespace heddle::cli

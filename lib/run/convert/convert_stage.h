// The stage of a conversion: one process at a time for one destination.
#pragma once

#include <filesystem>

namespace heddle {

// The stage of a directory (see publish.h), locked as long as this lives and empty at the beginning, but for
// the mark that it is one: what an interrupted conversion has left goes. On one rank.
class ConvertStage {
 public:
  // Throws Error{usage} when another process holds it, when something of its name is there that no conversion
  // has made, or the destination is not free; Error{io}.
  explicit ConvertStage(std::filesystem::path destination);
  ~ConvertStage();  // without publish(): the stage is removed
  ConvertStage(const ConvertStage&) = delete;
  ConvertStage& operator=(const ConvertStage&) = delete;

  void publish();

 private:
  bool lock();
  void take();
  void clear() const;
  void give_up() const;

  std::filesystem::path destination_, stage_;
  int file_ = -1;
  bool published_ = false;
};

// Throws Error{usage} when the destination has no name of its own, or is there and is no empty directory.
void check_free(const std::filesystem::path& destination);

}  // namespace heddle

// Stage directory of a conversion, used by one process at a time per destination.
#pragma once

#include <filesystem>

namespace heddle {

// Stage of a directory (see publish.h), locked for the lifetime of this object. The stage is empty at first
// except for its mark: the remains of an interrupted conversion are removed. Used on one rank.
class ConvertStage {
 public:
  // Throws Error{usage} if another process holds the stage, if an entry with its name was not left by a
  // conversion, or if the destination is not free. Throws Error{io}.
  explicit ConvertStage(std::filesystem::path destination);
  ~ConvertStage();  // removes the stage unless publish() was called
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

// Throws Error{usage} if the destination has no name of its own, or exists and is not an empty directory.
void check_free(const std::filesystem::path& destination);

}  // namespace heddle

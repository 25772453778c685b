// A TensorBoard event file: Event messages (tensorflow/core/util/event.proto) in TFRecord frames.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace heddle::tensorboard {

// The masked CRC32C of TFRecord: of the Castagnoli polynomial, rotated, plus a constant.
uint32_t masked_checksum(const std::string& bytes);

using Scalars = std::vector<std::pair<std::string, double>>;  // by tag

// Each event is one write, so a process that is killed leaves whole events. Throws Error{io}.
class EventFile {
 public:
  // Makes events.out.tfevents.SECONDS.HOST.PID in the directory, which sorts after those that are there.
  explicit EventFile(const std::filesystem::path& directory);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // TensorBoard forgets what other files say of this step and later ones.
  void restart(double time, int64_t step);
  void add(double time, int64_t step, const Scalars& scalars);
  const std::filesystem::path& path() const { return path_; }

 private:
  void append(const std::string& event);

  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace heddle::tensorboard

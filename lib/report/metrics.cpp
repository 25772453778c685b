// Metrics of steps, and the JSON Lines files that store them.
#include "lib/report/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <system_error>

#include "heddle/base/error.h"

namespace heddle {
namespace {

using Json = nlohmann::ordered_json;

Error cannot_write(const std::filesystem::path& file, int number) {
  return Error(ErrorCode::io, file.string(), std::string("cannot be written: ") + std::strerror(number),
               number == ENOSPC ? "free disk space, or choose another file with --metrics"
                                : "choose another file with --metrics, or another checkpoint.checkpoint_dir");
}

// First fields of every line.
template <class Record>
Json line_of(const Record& record, const std::string& timestamp) {
  return {{"step", record.step}, {"epoch", record.epoch}, {"timestamp", timestamp}};
}

}  // namespace

std::string to_json(const TrainingRecord& record, const std::string& timestamp) {
  Json line = line_of(record, timestamp);
  line["loss"] = record.loss;
  line["grad_norm"] = record.grad_norm;
  line["lr"] = record.lr;
  line["skipped"] = record.skipped;
  line["mem"] = record.mem;
  line["tps"] = record.tps;
  line["tps_per_gpu"] = record.tps_per_gpu;
  line["mfu"] = record.mfu ? Json(*record.mfu) : Json(nullptr);
  line["tflops"] = record.tflops ? Json(*record.tflops) : Json(nullptr);
  line["num_tokens_per_step"] = record.num_tokens_per_step;
  line["num_label_tokens"] = record.num_label_tokens;
  if (record.padding) line["padding"] = *record.padding;
  line["step_time"] = record.step_time;
  for (const SideRecord& side : record.sides)
    line[side.name] = side.values.size() == 1 ? Json(side.values[0]) : Json(side.values);
  return line.dump();
}

std::string to_json(const ValidationRecord& record, const std::string& timestamp) {
  Json line = line_of(record, timestamp);
  line["loss"] = record.loss;
  line["lr"] = record.lr;
  line["num_label_tokens"] = record.num_label_tokens;
  for (const SideRecord& side : record.sides) line[side.name] = side.values[0];
  return line.dump();
}

// An untrained model may generate invalid UTF-8, which is replaced.
std::string to_json(const SampleRecord& record, const std::string& timestamp) {
  Json line = line_of(record, timestamp);
  line["prompt"] = record.prompt;
  line["text"] = record.text;
  line["tokens"] = record.tokens;
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string timestamp_now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32], whole[40];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(whole, sizeof(whole), "%s.%03dZ", text, static_cast<int>(since % 1000));
  return whole;
}

LinesFile::LinesFile(const std::filesystem::path& file) : path_(file) {
  std::error_code failed;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), failed);
  if (failed) throw cannot_write(file.parent_path(), failed.value());
  descriptor_ = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw cannot_write(file, errno);
}

LinesFile::~LinesFile() {
  close(descriptor_);
}

void LinesFile::append(const std::string& line) {
  const std::string text = line + "\n";
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = write(descriptor_, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw cannot_write(path_, count < 0 ? errno : ENOSPC);
    written += static_cast<size_t>(count);
  }
}

}  // namespace heddle

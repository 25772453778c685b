// Metrics of steps, and the JSON Lines files that store them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

// An auxiliary loss or a metric of the model or of a plugin.
struct SideRecord {
  std::string name;            // "moe/load"
  std::vector<double> values;  // one number, or a list
  bool on_line = true;         // show on the progress line, if it is one number
};

// A line of training.jsonl. Times are in seconds, memory in GiB.
struct TrainingRecord {
  int64_t step = 0, epoch = 0;
  double loss = 0, grad_norm = 0, lr = 0;
  double mem = 0;        // peak: see PeakMemory; on a device, of its tensors
  bool skipped = false;  // the update was skipped because the loss or the gradient norm was not finite
  double tps = 0, tps_per_gpu = 0;
  std::optional<double> mfu;     // in percent of a rank's peak; empty: the peak is unknown
  std::optional<double> tflops;  // model TFLOP/s per rank; see ModelFlops
  int64_t num_tokens_per_step = 0, num_label_tokens = 0;
  std::optional<double> padding;  // share of padding in the computed tokens; empty: no padding
  double step_time = 0;
  std::vector<SideRecord> sides;  // after the fields above, by name
};

// A line of validation.jsonl.
struct ValidationRecord {
  int64_t step = 0, epoch = 0;
  double loss = 0, lr = 0;
  int64_t num_label_tokens = 0;
  std::vector<SideRecord> sides = {};  // parts of the loss, after the fields above
};

// A line of samples.jsonl.
struct SampleRecord {
  int64_t step = 0, epoch = 0;
  std::string prompt, text;  // text: the answer alone
  int64_t tokens = 0;        // tokens of the answer
};

std::string to_json(const SampleRecord& record, const std::string& timestamp);
std::string to_json(const TrainingRecord& record, const std::string& timestamp);
std::string to_json(const ValidationRecord& record, const std::string& timestamp);

// Returns the text in quotes, on one line.
std::string quoted(const std::string& text);

// "2026-11-21T10:15:30.123Z".
std::string timestamp_now();

// Appends lines, each in one write. Creates missing directories.
class LinesFile {
 public:
  // Throws Error{io} if the file cannot be opened.
  explicit LinesFile(const std::filesystem::path& file);
  ~LinesFile();
  LinesFile(const LinesFile&) = delete;
  LinesFile& operator=(const LinesFile&) = delete;
  // Throws Error{io} if the disk is full.
  void append(const std::string& line);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace heddle

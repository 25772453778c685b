// Progress line of a run.
#include "lib/report/progress.h"

#include <sys/ioctl.h>

#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "heddle/base/text.h"

namespace heddle {
namespace {

std::string time_text(double seconds) {
  char text[32];
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole >= 3600)
    std::snprintf(text, sizeof(text), "%dh %02dm", static_cast<int>(whole / 3600),
                  static_cast<int>(whole / 60 % 60));
  else if (whole >= 60)
    std::snprintf(text, sizeof(text), "%dm %02ds", static_cast<int>(whole / 60),
                  static_cast<int>(whole % 60));
  else
    std::snprintf(text, sizeof(text), "%ds", static_cast<int>(whole));
  return text;
}

std::string count_text(double value) {
  char text[32];
  if (value >= 1e6)
    std::snprintf(text, sizeof(text), "%.2fM", value / 1e6);
  else if (value >= 1e3)
    std::snprintf(text, sizeof(text), "%.1fk", value / 1e3);
  else
    std::snprintf(text, sizeof(text), "%.0f", value);
  return text;
}

// Returns "0.052 TFLOP/s (61.3% MFU)" per rank; "" if the model's FLOPs are unknown.
std::string speed_text(const TrainingRecord& record) {
  if (!record.tflops) return "";
  char text[64];
  std::snprintf(text, sizeof(text), "%.3g TFLOP/s", *record.tflops);
  std::string out = text;
  if (record.mfu) {
    std::snprintf(text, sizeof(text), " (%.1f%% MFU)", *record.mfu);
    out += text;
  }
  return out;
}

// Returns "8.1k tok/s (12% padding)".
std::string tokens_text(const TrainingRecord& record) {
  std::string out = count_text(record.tps) + " tok/s";
  if (!record.padding) return out;
  char text[32];
  std::snprintf(text, sizeof(text), " (%.0f%% padding)", 100 * *record.padding);
  return out + text;
}

std::string joined(const std::vector<std::string>& fields) {
  std::string line;
  for (const std::string& field : fields)
    if (!field.empty()) line += (line.empty() ? "" : "  ") + field;
  return line;
}

}  // namespace

std::string progress_line(const TrainingRecord& record, int64_t total_steps, double seconds_left,
                          size_t columns) {
  const auto formatted = [](const char* format, double value) {
    char text[64];
    std::snprintf(text, sizeof(text), format, value);
    return std::string(text);
  };
  std::vector<std::string> fields = {
      "step " + std::to_string(record.step + 1) + "/" + std::to_string(total_steps),
      formatted("loss %.4f", record.loss),
      formatted("norm %.3f", record.grad_norm),
      formatted("lr %.2e", record.lr),
      tokens_text(record),
      speed_text(record),
      bytes_text(record.mem * (1 << 30)),
      time_text(seconds_left) + " left"};
  const size_t own = fields.size();
  for (const SideRecord& side : record.sides)
    if (side.on_line && side.values.size() == 1)
      fields.push_back(side.name + formatted(" %.4g", side.values[0]));
  std::vector<size_t> by_weight;  // least important fields first
  for (size_t i = fields.size(); i > own; --i) by_weight.push_back(i - 1);
  by_weight.insert(by_weight.end(), {6, 5, 2, 3, 4, 7, 1});
  std::string line = joined(fields);
  for (const size_t least : by_weight) {
    if (line.size() <= columns) return line;
    fields[least].clear();
    line = joined(fields);
  }
  return line.substr(0, columns);
}

size_t terminal_columns(int file) {
  winsize size{};
  return ::ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

Progress::Progress(Screen screen, int64_t total_steps)
    : screen_(std::move(screen)), total_steps_(total_steps) {}

void Progress::show(const TrainingRecord& record) {
  if (shown_++ > 0) seconds_ += record.step_time;
  const double one = shown_ > 1 ? seconds_ / static_cast<double>(shown_ - 1) : record.step_time;
  const double left = one * static_cast<double>(total_steps_ - record.step - 1);
  if (screen_.columns) {
    // Some terminals wrap a line that is as wide as the terminal.
    const std::string line = progress_line(record, total_steps_, left, screen_.columns() - 1);
    screen_.out << '\r' << line << "\033[K" << std::flush;
    screen_.open_line = true;
    passes_ = false;
    return;
  }
  const auto now = Clock::now();
  const bool last = record.step + 1 == total_steps_;
  if (shown_ > 1 && !last && now - last_line_ < std::chrono::seconds(1)) return;
  last_line_ = now;
  screen_.out << progress_line(record, total_steps_, left) << std::endl;
}

void Progress::validating(const std::string& set, int64_t done, int64_t samples) {
  const std::string line = "validation" + (set.empty() ? "" : " " + set) + "  " + std::to_string(done) + "/" +
                           std::to_string(samples) + " samples";
  if (screen_.columns) {
    if (done == 0 && !passes_) finish();
    screen_.out << '\r' << line.substr(0, screen_.columns() - 1) << "\033[K" << std::flush;
    screen_.open_line = passes_ = true;
    return;
  }
  const auto now = Clock::now();
  if (done > 0 && now - last_line_ < std::chrono::seconds(1)) return;
  last_line_ = now;
  if (done > 0) screen_.out << line << std::endl;
}

void Progress::note(const std::string& text) {
  if (std::exchange(passes_, false) && screen_.open_line.exchange(false)) screen_.out << "\r\033[K";
  finish();
  screen_.out << text << std::endl;
}

void Progress::finish() {
  if (screen_.open_line.exchange(false)) screen_.out << std::endl;
}

}  // namespace heddle

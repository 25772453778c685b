// The line that shows how a run is going.
#include "trainer/loop/progress.h"

#include <cmath>
#include <cstdio>

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

}  // namespace

std::string progress_line(const TrainingRecord& record, int64_t total_steps, double seconds_left) {
  char text[256];
  std::snprintf(text, sizeof(text),
                "step %lld/%lld  loss %.4f  norm %.3f  lr %.2e  %s tok/s  %.2f GiB  %s left",
                static_cast<long long>(record.step + 1), static_cast<long long>(total_steps), record.loss,
                record.grad_norm, record.lr, count_text(record.tps).c_str(), record.mem,
                time_text(seconds_left).c_str());
  return text;
}

Progress::Progress(std::ostream& out, Style style, int64_t total_steps)
    : out_(out), style_(style), total_steps_(total_steps) {}

void Progress::show(const TrainingRecord& record) {
  if (shown_++ > 0) seconds_ += record.step_time;
  const double one = shown_ > 1 ? seconds_ / static_cast<double>(shown_ - 1) : record.step_time;
  const double left = one * static_cast<double>(total_steps_ - record.step - 1);
  if (style_ == Style::rewriting) {
    out_ << '\r' << progress_line(record, total_steps_, left) << "\033[K" << std::flush;
    open_ = true;
    return;
  }
  const auto now = Clock::now();
  const bool last = record.step + 1 == total_steps_;
  if (shown_ > 1 && !last && now - last_line_ < std::chrono::seconds(1)) return;
  last_line_ = now;
  out_ << progress_line(record, total_steps_, left) << std::endl;
}

void Progress::note(const std::string& text) {
  finish();
  out_ << text << std::endl;
}

void Progress::finish() {
  if (open_) out_ << std::endl;
  open_ = false;
}

}  // namespace heddle

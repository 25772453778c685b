// Draws timelines: each column of pixels has the color of the kind of work that takes most of it.
#include "lib/cost/time/step_picture.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <vector>

#include "heddle/base/text.h"
#include "lib/drawing/chrome_trace.h"

namespace heddle {
namespace {

constexpr int kColumns = 1100;  // width of the time axis in pixels
constexpr double kLeft = 150, kTop = 74, kLane = 22, kGap = 4, kMemory = 70, kBetween = 34;
constexpr int kShades = 4;  // number of heights of a column

struct Look {
  const char* kind;
  const char* color;
};
constexpr std::array kLooks = {Look{"products", "#2b6cd4"}, Look{"attention", "#7d4fc3"},
                               Look{"other operators", "#2c8a63"}, Look{"collectives", "#d1742f"}};
constexpr size_t kKinds = kLooks.size();

size_t kind_index(const char* kind) {
  const auto same = [&](const Look& look) { return std::string_view(look.kind) == kind; };
  const auto found = std::find_if(kLooks.begin(), kLooks.end(), same);
  return found == kLooks.end() ? 2 : static_cast<size_t>(found - kLooks.begin());
}

std::string pixels(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

std::string rect(double x, double y, double width, double height, const std::string& fill) {
  return "<rect x=\"" + pixels(x) + "\" y=\"" + pixels(y) + "\" width=\"" + pixels(width) + "\" height=\"" +
         pixels(height) + "\" fill=\"" + fill + "\"/>\n";
}

std::string words(double x, double y, const std::string& text, const std::string& style) {
  return "<text x=\"" + pixels(x) + "\" y=\"" + pixels(y) + "\" " + style + ">" + text + "</text>\n";
}

// Returns the streams in the order of their first work, "compute" first.
std::vector<std::string> streams_of(const RankTimeline& timeline) {
  std::vector<std::string> out = {"compute"};
  for (const Busy& span : timeline.spans)
    if (std::find(out.begin(), out.end(), span.stream) == out.end()) out.push_back(span.stream);
  return out;
}

class StepPicture {
 public:
  StepPicture(const StepCost& cost, const std::string& title) : cost_(cost), title_(title) {
    for (const RankTimeline& timeline : cost.timelines) {
      seconds_ = std::max(seconds_, timeline.seconds);
      for (const MemoryPoint& point : timeline.memory)
        most_ = std::max(most_, static_cast<double>(point.bytes));
    }
  }

  std::string draw() {
    double y = kTop;
    for (const RankTimeline& timeline : cost_.timelines) y = of_rank(timeline, y);
    legend(y);
    const std::string width = pixels(kLeft + kColumns + 130), height = pixels(y + 36);
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + width + " " + height + "\" width=\"" +
           width + "\" height=\"" + height +
           "\" role=\"img\" aria-label=\"a predicted step\" font-family=\"system-ui, -apple-system, "
           "'Segoe UI', Helvetica, Arial, sans-serif\">\n"
           "<rect width=\"100%\" height=\"100%\" rx=\"10\" fill=\"#ffffff\"/>\n" +
           words(20, 32, title_, "font-size=\"18\" font-weight=\"600\" fill=\"#10202e\"") +
           words(20, 54, seconds_text(seconds_) + " shown of a step of " + seconds_text(cost_.time.seconds),
                 "font-size=\"13\" fill=\"#51606e\"") +
           out_ + "</svg>\n";
  }

 private:
  double column(double seconds) const { return seconds / seconds_ * kColumns; }

  double of_rank(const RankTimeline& timeline, double y) {
    out_ += words(20, y + 15, "stage " + std::to_string(timeline.rank),
                  "font-size=\"13\" font-weight=\"600\" fill=\"#10202e\"");
    for (const std::string& stream : streams_of(timeline)) {
      out_ += words(kLeft - 10, y + 15, stream, "font-size=\"12\" fill=\"#51606e\" text-anchor=\"end\"");
      lane(timeline, stream, y);
      y += kLane + kGap;
    }
    memory(timeline, y);
    return y + kMemory + kBetween;
  }

  void lane(const RankTimeline& timeline, const std::string& stream, double y) {
    out_ += rect(kLeft, y, kColumns, kLane, "#eef1f4");
    std::vector<std::array<double, kKinds>> columns(kColumns);  // [column]: shares of its time by kind
    for (const Busy& span : timeline.spans) {
      if (span.stream != stream) continue;
      const double from = column(span.begin), to = std::min<double>(kColumns, column(span.end));
      for (int at = static_cast<int>(from); at < to && at < kColumns; ++at)
        columns[at][kind_index(span.kind)] += std::min<double>(to, at + 1) - std::max<double>(from, at);
    }
    int begin = 0;
    std::pair<size_t, int> last = {0, 0};
    for (int at = 0; at <= kColumns; ++at) {
      std::pair<size_t, int> here = {0, 0};  // kind, height
      if (at < kColumns) {
        const auto& shares = columns[at];
        double busy = 0;
        for (const double share : shares) busy += share;
        here = {static_cast<size_t>(std::max_element(shares.begin(), shares.end()) - shares.begin()),
                static_cast<int>(std::min(1.0, busy) * kShades + 0.5)};
      }
      if (at < kColumns && here == last) continue;
      if (last.second > 0) {
        const double height = kLane * last.second / kShades;
        out_ += rect(kLeft + begin, y + kLane - height, at - begin, height, kLooks[last.first].color);
      }
      begin = at;
      last = here;
    }
  }

  void memory(const RankTimeline& timeline, double y) {
    std::vector<double> columns(kColumns, -1);
    for (const MemoryPoint& point : timeline.memory) {
      const int at = std::clamp(static_cast<int>(column(point.seconds)), 0, kColumns - 1);
      columns[at] = std::max(columns[at], static_cast<double>(point.bytes));
    }
    double last = timeline.memory.empty() ? 0 : static_cast<double>(timeline.memory.front().bytes);
    std::string points = pixels(kLeft) + "," + pixels(y + kMemory);
    for (int at = 0; at < kColumns; ++at) {
      const double here = columns[at] < 0 ? last : columns[at];
      if (at == 0 || here != last)
        points += " " + pixels(kLeft + at) + "," + pixels(y + kMemory - last / most_ * kMemory) + " " +
                  pixels(kLeft + at) + "," + pixels(y + kMemory - here / most_ * kMemory);
      last = here;
    }
    points += " " + pixels(kLeft + kColumns) + "," + pixels(y + kMemory - last / most_ * kMemory) + " " +
              pixels(kLeft + kColumns) + "," + pixels(y + kMemory);
    double peak = 0;
    for (const MemoryPoint& point : timeline.memory) peak = std::max(peak, static_cast<double>(point.bytes));
    out_ += words(kLeft - 10, y + 15, "memory", "font-size=\"12\" fill=\"#51606e\" text-anchor=\"end\"") +
            "<polygon points=\"" + points + "\" fill=\"#b9c6d3\" stroke=\"#51606e\"/>\n" +
            words(kLeft + kColumns + 8, y + kMemory - peak / most_ * kMemory + 10, bytes_text(peak),
                  "font-size=\"12\" fill=\"#10202e\"");
  }

  void legend(double y) {
    double x = kLeft;
    for (const Look& look : kLooks) {
      out_ += rect(x, y - 10, 12, 12, look.color) +
              words(x + 18, y + 1, look.kind, "font-size=\"12\" fill=\"#10202e\"");
      x += 150;
    }
  }

  const StepCost& cost_;
  const std::string title_;
  double seconds_ = 1e-9, most_ = 1;
  std::string out_;
};

// Returns an event of Chrome's trace format: a counter, which Perfetto draws as an area.
std::string counter_of(int process, const MemoryPoint& point) {
  char text[120];
  std::snprintf(
      text, sizeof(text),
      "{\"ph\":\"C\",\"pid\":%d,\"tid\":0,\"name\":\"memory\",\"ts\":%.3f,\"args\":{\"value\":%lld}},\n",
      process, point.seconds * 1e6, static_cast<long long>(point.bytes));
  return text;
}

}  // namespace

std::string step_svg(const StepCost& cost, const std::string& title) {
  return StepPicture(cost, title).draw();
}

std::string step_trace(const StepCost& cost, const std::string& title) {
  schedule::ChromeTrace trace;
  std::string counters;
  for (const RankTimeline& timeline : cost.timelines) {
    trace.process(timeline.rank, "stage " + std::to_string(timeline.rank), timeline.rank, title);
    const std::vector<std::string> streams = streams_of(timeline);
    for (size_t i = 0; i < streams.size(); ++i) trace.thread(timeline.rank, static_cast<int>(i), streams[i]);
    for (const Busy& span : timeline.spans) {
      const auto stream = std::find(streams.begin(), streams.end(), span.stream) - streams.begin();
      trace.span(timeline.rank, static_cast<int>(stream), span.name, span.kind, span.begin * 1e6,
                 span.end * 1e6);
    }
    for (const MemoryPoint& point : timeline.memory) counters += counter_of(timeline.rank, point);
  }
  return schedule::chrome_file(trace.text() + counters,
                               "{\"schedule\":null,\"layout\":" + text::quoted(title) + "}");
}

}  // namespace heddle

// The SVG of a schedule.
#include <algorithm>
#include <cstdio>
#include <set>
#include <string_view>

#include "lib/drawing/drawing.h"

namespace heddle::schedule {
namespace {

constexpr double kLeft = 76, kRight = 164, kTop = 74, kLane = 34, kGap = 8, kBelow = 102, kLeast = 780;
constexpr double kSheet = 1100;                    // of the longest schedule on a sheet
constexpr double kLetter = 7.2, kHeadLetter = 12;  // widths of text of 12 and of 20, at most on average

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  std::string out = text;
  while (out.back() == '0') out.pop_back();
  if (out.back() == '.') out.pop_back();
  return out;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '&')
      out += "&amp;";
    else if (letter == '<')
      out += "&lt;";
    else if (letter == '>')
      out += "&gt;";
    else if (static_cast<unsigned char>(letter) >= ' ')
      out += letter;
  }
  return out;
}

struct Look {
  Action::Kind kind;
  int hue, saturation;
  int white_below;  // the greatest lightness at which white numbers are readable on this hue
  const char* words;
};
constexpr Look kLooks[] = {{Action::forward, 214, 72, 58, "forward"},
                           {Action::backward, 152, 52, 50, "backward"},
                           {Action::backward_input, 174, 58, 46, "gradient of the input"},
                           {Action::backward_weight, 34, 78, 43, "gradient of the weights"}};

class Picture {
 public:
  explicit Picture(const Drawing& drawing)
      : Picture(drawing, {1, 2, 1, 1, has_transfers(drawing.table) ? 0.25 : 0}) {
    // Long schedules get narrow cells, short ones do not fill the page.
    unit_ = std::clamp(1400 / std::max(run_.length, 1.0), 7.0, 30.0);
  }
  // costs: of each stage.
  Picture(const Drawing& drawing, const Costs& costs)
      : drawing_(drawing),
        lowered_(has_transfers(drawing.table)),
        costs_(costs),
        run_(simulate(drawing.table, drawing.rank_of_stage, costs_)) {}

  double length() const { return run_.length; }
  double height() const { return bottom() + kBelow; }
  double width() const {
    const double heading_width = 40 + kHeadLetter * static_cast<double>(drawing_.name.size());
    return std::max({kLeast, kLeft + run_.length * unit_ + kRight, heading_width});
  }
  // Pixels of a unit of time.
  void set_unit(double unit) { unit_ = unit; }

  std::string draw() {
    const double width = this->width(), height = this->height();
    out_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + number(width) + " " + number(height) +
           "\" width=\"" + number(width) + "\" height=\"" + number(height) +
           "\" role=\"img\" aria-label=\"pipeline schedule, " + sizes_text(drawing_) +
           "\" font-family=\"system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\">\n" +
           "<rect width=\"100%\" height=\"100%\" rx=\"10\" fill=\"#ffffff\"/>\n";
    heading();
    axis();
    for (size_t rank = 0; rank < drawing_.table.size(); ++rank) lane(rank);
    if (lowered_) transfers();
    legend();
    return out_ + "</svg>\n";
  }

 private:
  static bool has_transfers(const ScheduleTable& table) {
    return std::any_of(table.begin(), table.end(), [](const auto& row) {
      return std::any_of(row.begin(), row.end(), [](const Action& action) { return sends(action.kind); });
    });
  }

  std::string peak_words(int peak) const {
    return peak_text(peak, drawing_.rank_of_stage.size(), drawing_.table.size());
  }
  double x(double time) const { return kLeft + time * unit_; }
  double y(size_t rank) const { return kTop + static_cast<double>(rank) * (kLane + kGap); }
  double bottom() const { return y(drawing_.table.size()) - kGap; }

  // The last stage is the lightest.
  int lightness(int stage) const {
    const int last = std::max(1, static_cast<int>(drawing_.rank_of_stage.size()) - 1);
    return 38 + 34 * stage / last;
  }
  std::string fill(const Look& look, int stage) const {
    return "hsl(" + std::to_string(look.hue) + "," + std::to_string(look.saturation) + "%," +
           std::to_string(lightness(stage)) + "%)";
  }
  const char* ink(const Look& look, int stage) const {
    return lightness(stage) < look.white_below ? "#ffffff" : "#10202e";
  }

  void text(double at_x, double at_y, const std::string& words, const std::string& style) {
    out_ += "<text x=\"" + number(at_x) + "\" y=\"" + number(at_y) + "\" " + style + ">" + escaped(words) +
            "</text>\n";
  }

  void heading() {
    double busy = 0;
    for (const double idle : run_.idle) busy += idle;
    const int peak = *std::max_element(run_.peak.begin(), run_.peak.end());
    text(20, 32, drawing_.name, "font-size=\"20\" font-weight=\"600\" fill=\"#10202e\"");
    text(20, 54,
         sizes_text(drawing_) + "  \u00b7  " + idle_text(busy / static_cast<double>(run_.idle.size())) +
             "  \u00b7  at most " + peak_words(peak) + " alive on a rank",
         "font-size=\"13\" fill=\"#51606e\"");
  }

  void axis() {
    double step = 1;
    for (bool five = true; step * unit_ < 60; five = !five) step *= five ? 5 : 2;
    for (double time = 0; time <= run_.length + 1e-9; time += step) {
      out_ += "<line x1=\"" + number(x(time)) + "\" x2=\"" + number(x(time)) + "\" y1=\"" + number(kTop - 4) +
              "\" y2=\"" + number(bottom() + 6) + "\" stroke=\"#d9dfe5\"/>\n";
      text(x(time), bottom() + 20, number(time), "font-size=\"11\" fill=\"#7a8894\" text-anchor=\"middle\"");
    }
  }

  void lane(size_t rank) {
    out_ += "<rect x=\"" + number(kLeft) + "\" y=\"" + number(y(rank)) + "\" width=\"" +
            number(run_.length * unit_) + "\" height=\"" + number(kLane) + "\" rx=\"4\" fill=\"#eef1f4\"/>\n";
    text(kLeft - 12, y(rank) + kLane / 2 + 4.5, "rank " + std::to_string(rank),
         "font-size=\"13\" fill=\"#10202e\" text-anchor=\"end\"");
    for (size_t step = 0; step < drawing_.table[rank].size(); ++step)
      if (computes(drawing_.table[rank][step].kind)) cell(rank, step);
    text(x(run_.length) + 12, y(rank) + kLane / 2 + 4.5,
         idle_text(run_.idle[rank]) + ", peak " + peak_words(run_.peak[rank]),
         "font-size=\"12\" fill=\"#51606e\"");
  }

  void cell(size_t rank, size_t step) {
    const Action& action = drawing_.table[rank][step];
    const TimeSpan& time = run_.times[rank][step];
    const double width = (time.end - time.start) * unit_;
    out_ += "<g><title>" + name_of(action) + ": " + number(time.start) + " to " + number(time.end) +
            "</title><rect x=\"" + number(x(time.start) + 0.5) + "\" y=\"" + number(y(rank) + 1) +
            "\" width=\"" + number(width - 1) + "\" height=\"" + number(kLane - 2) + "\" rx=\"3\" fill=\"" +
            fill(kLooks[action.kind], action.stage) + "\"/>";
    // One font size for all numbers of one width; numbers too small to read are omitted.
    const double size = std::min(13.0, (width - 2) / (0.62 * digits_));
    if (size >= 6.5)
      text(x(time.start) + width / 2, y(rank) + kLane / 2 + size * 0.36, std::to_string(action.microbatch),
           "font-size=\"" + number(size) + "\" fill=\"" + ink(kLooks[action.kind], action.stage) +
               "\" text-anchor=\"middle\"");
    out_ += "</g>\n";
  }

  // From the end of the computation that produces the data to its arrival.
  void transfers() {
    for (size_t rank = 0; rank < drawing_.table.size(); ++rank)
      for (size_t step = 0; step < drawing_.table[rank].size(); ++step) {
        const Action& action = drawing_.table[rank][step];
        if (!sends(action.kind)) continue;
        const size_t peer = drawing_.rank_of_stage[peer_stage(action)];
        const TimeSpan& time = run_.times[rank][step];
        const double from = y(rank) + (peer > rank ? kLane : 0), to = y(peer) + (peer > rank ? 0 : kLane);
        out_ += "<line x1=\"" + number(x(time.start)) + "\" y1=\"" + number(from) + "\" x2=\"" +
                number(x(time.end)) + "\" y2=\"" + number(to) + "\" stroke=\"" +
                (action.kind == Action::send_forward ? "#2b6cd4" : "#2c8a63") +
                "\" stroke-width=\"1.2\"><title>" + name_of(action) + "</title></line>\n";
      }
  }

  void legend() {
    std::set<int> kinds;
    for (const auto& row : drawing_.table)
      for (const Action& action : row)
        if (computes(action.kind)) kinds.insert(action.kind);
    double at = kLeft;
    const double line = bottom() + 46;
    const int last = static_cast<int>(drawing_.rank_of_stage.size()) - 1;
    for (const Look& look : kLooks) {
      if (!kinds.contains(look.kind)) continue;
      for (int shade = 0; shade < 3; ++shade)
        out_ += "<rect x=\"" + number(at + 9 * shade) + "\" y=\"" + number(line - 11) +
                "\" width=\"9\" height=\"14\" fill=\"" + fill(look, last * shade / 2) + "\"/>\n";
      text(at + 34, line, look.words, "font-size=\"12\" fill=\"#10202e\"");
      at += 34 + kLetter * static_cast<double>(std::string(look.words).size()) + 18;
    }
    const std::string style = "font-size=\"12\" fill=\"#51606e\"";
    text(kLeft, line + 22, "Numbers are microbatches; the shade is the stage, light for the last.", style);
    text(kLeft, line + 40,
         "Time of a stage: forward " + number(costs_.forward) + ", backward " + number(costs_.backward) +
             " (input " + number(costs_.backward_input) + ", weights " + number(costs_.backward_weight) +
             ")" + (costs_.transfer > 0 ? ", a transfer " + number(costs_.transfer) + "." : "."),
         style);
  }

  const Drawing& drawing_;
  const bool lowered_;
  const Costs costs_;
  const Simulation run_;
  const double digits_ = static_cast<double>(std::to_string(drawing_.microbatches - 1).size());
  double unit_ = 20;
  std::string out_;
};

}  // namespace

std::string to_svg(const Drawing& drawing) {
  return Picture(drawing).draw();
}

std::string to_sheet(std::span<const Drawing> drawings, const Costs& costs) {
  std::vector<Picture> pictures;
  double longest = 1e-9, width = 0, height = 0;
  for (const Drawing& drawing : drawings) {
    const int each = static_cast<int>(drawing.rank_of_stage.size() / drawing.table.size());
    pictures.emplace_back(drawing, stage_share(costs, each));
    longest = std::max(longest, pictures.back().length());
  }
  std::string out;
  for (Picture& picture : pictures) {
    picture.set_unit(kSheet / longest);
    const std::string one = picture.draw();
    out += "<svg y=\"" + number(height) + "\"" + one.substr(std::string_view("<svg").size());
    width = std::max(width, picture.width());
    height += picture.height();
  }
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + number(width) + " " + number(height) +
         "\" width=\"" + number(width) + "\" height=\"" + number(height) +
         "\" role=\"img\" aria-label=\"pipeline schedules\">\n" + out + "</svg>\n";
}

}  // namespace heddle::schedule

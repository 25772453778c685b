// Draws the loss of a run as an SVG.
#include "lib/report/loss_curve.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "core/base/regular_file.h"
#include "heddle/base/text.h"

namespace heddle {
namespace {

constexpr double kWidth = 960, kHeight = 540;
constexpr double kLeft = 72, kRight = 28, kBottom = 58;
// first line, line height, width of a letter of 13 px
constexpr double kLegend = 41.5, kRow = 20, kLetter = 7.2;
constexpr size_t kMostPoints = 1200;
constexpr const char *kBlue = "#2563eb", *kRed = "#dc2626";
// Colors of validation sets, used cyclically.
constexpr std::array<const char*, 6> kSets = {"#ea580c", "#16a34a", "#9333ea",
                                              "#0891b2", "#a16207", "#db2777"};

std::string number(double value, const char* format = "%.1f") {
  char text[48];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

// Maps steps and losses to coordinates.
struct Frame {
  double steps = 1, low = 0, high = 1, tick = 0.2, step_tick = 1, top = 56;
  double x(double step) const { return kLeft + step / steps * (kWidth - kLeft - kRight); }
  double y(double loss) const {
    return kHeight - kBottom - (loss - low) / (high - low) * (kHeight - top - kBottom);
  }
};

// Returns 1, 2 or 5 times a power of ten, so that about `count` ticks fill the range.
double nice_tick(double range, double count) {
  const double rough = range / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (rough <= factor * power * 1.0001) return factor * power;
  return 10.0 * power;
}

bool is_drawn(const CurvePoint& point) {
  return std::isfinite(point.loss) && !point.skipped;
}

std::vector<CurvePoint> drawn_points(const std::vector<CurvePoint>& points) {
  std::vector<CurvePoint> out;
  for (const CurvePoint& point : points)
    if (is_drawn(point)) out.push_back(point);
  return out;
}

// `points`: all points to draw.
Frame frame_of(const std::vector<CurvePoint>& points) {
  Frame frame;
  double low = points.front().loss, high = low;
  for (const CurvePoint& point : points) {
    low = std::min(low, point.loss);
    high = std::max(high, point.loss);
    frame.steps = std::max(frame.steps, static_cast<double>(point.step + 1));
  }
  frame.tick = nice_tick(std::max(high - low, 1e-3), 6);
  frame.low = std::floor(low / frame.tick) * frame.tick;
  frame.high = std::ceil(high / frame.tick) * frame.tick;
  if (frame.high <= frame.low) frame.high = frame.low + frame.tick;
  frame.step_tick = std::max(1.0, nice_tick(frame.steps, 8));
  return frame;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char letter : text)
    out += letter == '<' ? "&lt;" : letter == '&' ? "&amp;" : std::string(1, letter);
  return out;
}

std::string text_at(double x, double y, const std::string& text, const std::string& attributes) {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" " + attributes + ">" + text + "</text>\n";
}

std::string line_of(double x1, double y1, double x2, double y2, const std::string& attributes) {
  return "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) + "\" y2=\"" +
         number(y2) + "\" " + attributes + "/>\n";
}

std::string axes(const Frame& frame) {
  const std::string grid = "stroke=\"#e6e8ec\"", small = "font-size=\"13\" fill=\"#5b6472\"";
  const double bottom = kHeight - kBottom, right = kWidth - kRight;
  const char* format = frame.tick < 0.01 ? "%.3f" : frame.tick < 0.1 ? "%.2f" : "%.1f";
  std::string out;
  for (int i = 0; frame.low + i * frame.tick <= frame.high + frame.tick * 0.01; ++i) {
    const double loss = frame.low + i * frame.tick;
    out += line_of(kLeft, frame.y(loss), right, frame.y(loss), grid);
    out += text_at(kLeft - 10, frame.y(loss) + 4.5, number(loss, format), small + " text-anchor=\"end\"");
  }
  for (double step = 0; step <= frame.steps; step += frame.step_tick)
    out += text_at(frame.x(step), bottom + 22, number(step, "%.0f"), small + " text-anchor=\"middle\"");
  out += line_of(kLeft, bottom, right, bottom, "stroke=\"#9aa3b0\"");
  out += text_at((kLeft + right) / 2, kHeight - 14, "step", small + " text-anchor=\"middle\"");
  out += "<text transform=\"translate(20 " + number((frame.top + bottom) / 2) + ") rotate(-90)\" " + small +
         " text-anchor=\"middle\">loss (nats a token)</text>\n";
  return out;
}

// One polyline per stretch of points without gaps.
std::string polylines(const Frame& frame, const std::vector<CurvePoint>& points,
                      const std::string& attributes) {
  std::string out, stretch;
  const size_t stride = points.size() / kMostPoints + 1;
  size_t count = 0;
  const auto close = [&] {
    if (count > 0)
      out += "<polyline fill=\"none\" stroke-linejoin=\"round\" stroke-linecap=\"round\" " + attributes +
             " points=\"" + (count == 1 ? stretch + stretch : stretch) + "\"/>\n";
    stretch.clear();
    count = 0;
  };
  for (size_t i = 0; i < points.size(); ++i) {
    if (!is_drawn(points[i])) {
      close();
      continue;
    }
    const bool is_end = i + 1 == points.size() || !is_drawn(points[i + 1]);
    if (i % stride != 0 && count > 0 && !is_end) continue;
    stretch += number(frame.x(static_cast<double>(points[i].step + 1))) + "," +
               number(frame.y(points[i].loss)) + " ";
    ++count;
  }
  close();
  return out;
}

// Returns an exponential mean over about a fiftieth of the run, over less at the start so that it does not
// lag. Ignores points that are not drawn.
std::vector<CurvePoint> running_mean(const std::vector<CurvePoint>& points) {
  const double longest = std::max(2.0, static_cast<double>(points.size()) / 50.0);
  std::vector<CurvePoint> out = points;
  double mean = 0, seen = 0;
  for (CurvePoint& point : out) {
    if (!is_drawn(point)) continue;
    const double steps = std::min(longest, 1.0 + seen++ / 8.0);
    mean += (point.loss - mean) / steps;
    point.loss = mean;
  }
  return out;
}

// Marks of skipped steps on the axis; marks less than a pixel apart are merged.
std::string skipped_marks(const Frame& frame, const std::vector<CurvePoint>& points) {
  std::string out;
  double begin = -1, end = -1;
  const auto close = [&] {
    if (end < 0) return;
    out += "<rect x=\"" + number(begin - 1) + "\" y=\"" + number(kHeight - kBottom - 8) + "\" width=\"" +
           number(end - begin + 2) + "\" height=\"8\" fill=\"" + kRed + "\"/>\n";
  };
  for (const CurvePoint& point : points) {
    if (!point.skipped) continue;
    const double x = frame.x(static_cast<double>(point.step + 1));
    if (end >= 0 && x - end > 1) close();
    if (end < 0 || x - end > 1) begin = x;
    end = x;
  }
  close();
  return out;
}

// Entries from left to right, in as many rows as needed.
class Legend {
 public:
  void add(const std::string& colour, const std::string& text) {
    const double width = 52 + kLetter * static_cast<double>(text.size());
    if (x_ > kBegin && x_ + width > kWidth) {
      x_ = kBegin;
      ++rows_;
    }
    const double y = kLegend + kRow * rows_;
    out_ += line_of(x_, y - 4.5, x_ + 24, y - 4.5,
                    "stroke=\"" + colour + "\" stroke-width=\"3\" stroke-linecap=\"round\"");
    out_ += text_at(x_ + 32, y, escaped(text), "font-size=\"13\" fill=\"#2b3440\"");
    x_ += width;
  }
  const std::string& text() const { return out_; }
  double height() const { return kRow * rows_; }  // of the rows after the first

 private:
  static constexpr double kBegin = kLeft + 80;
  double x_ = kBegin;
  int rows_ = 0;
  std::string out_;
};

std::string stroke_of(const std::string& colour, const std::string& width) {
  return "stroke=\"" + colour + "\" stroke-width=\"" + width + "\"";
}

std::string set_text(const std::string& name) {
  constexpr size_t kMost = 40;
  return name.empty() ? "validation" : "validation " + text::excerpt(name, kMost);
}

std::string validation_line(const Frame& frame, const std::vector<CurvePoint>& points, const char* colour) {
  std::string out = polylines(frame, points, stroke_of(colour, "2"));
  for (const CurvePoint& point : drawn_points(points))
    out += "<circle cx=\"" + number(frame.x(static_cast<double>(point.step + 1))) + "\" cy=\"" +
           number(frame.y(point.loss)) + "\" r=\"3.5\" fill=\"" + colour + "\"/>\n";
  return out;
}

}  // namespace

bool is_loss_curve(const std::filesystem::path& file) {
  const std::string_view head = kLossCurveHead;
  return read_beginning(file, head.size()) == head;
}

std::string loss_curve_svg(const std::vector<CurvePoint>& training, const ValidationCurves& validation) {
  std::string out = std::string(kLossCurveHead) + "<rect width=\"960\" height=\"540\" fill=\"#ffffff\"/>\n";
  out += text_at(kLeft, 42, "Loss", "font-size=\"20\" font-weight=\"600\" fill=\"#1b2430\"");
  std::vector<CurvePoint> drawn = drawn_points(training);
  if (drawn.empty())
    return out + text_at(kLeft, kHeight / 2, "No finite loss", "font-size=\"16\"") + "</svg>\n";
  const std::vector<CurvePoint> mean = running_mean(training);
  Legend legend;
  legend.add(kBlue, "training, last " + number(drawn.back().loss, "%.3f") + ", mean " +
                        number(drawn_points(mean).back().loss, "%.3f"));
  size_t sets = 0;
  for (const auto& [name, points] : validation) {
    const std::vector<CurvePoint> of_set = drawn_points(points);
    drawn.insert(drawn.end(), of_set.begin(), of_set.end());
    const char* colour = kSets[sets++ % kSets.size()];
    if (!of_set.empty()) legend.add(colour, set_text(name) + ", last " + number(of_set.back().loss, "%.3f"));
  }
  const auto skipped =
      std::count_if(training.begin(), training.end(), [](const CurvePoint& point) { return point.skipped; });
  if (skipped > 0) legend.add(kRed, "skipped, " + std::to_string(skipped));
  Frame frame = frame_of(drawn);
  frame.top += legend.height();
  frame.steps = std::max(frame.steps, static_cast<double>(training.back().step + 1));
  out += axes(frame);
  out += polylines(frame, training, stroke_of(kBlue, "1") + " stroke-opacity=\"0.25\"");
  out += polylines(frame, mean, stroke_of(kBlue, "2.5"));
  out += skipped_marks(frame, training) + legend.text();
  sets = 0;
  for (const auto& [name, points] : validation)
    out += validation_line(frame, points, kSets[sets++ % kSets.size()]);
  return out + "</svg>\n";
}

}  // namespace heddle

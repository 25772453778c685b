// The loss of a run as a picture, an SVG written by hand.
#include "lib/run/metrics/loss_curve.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "core/base/regular_file.h"

namespace heddle {
namespace {

constexpr double kWidth = 960, kHeight = 540;
constexpr double kLeft = 72, kRight = 28, kTop = 56, kBottom = 58;
constexpr size_t kMostPoints = 1200;
constexpr const char *kBlue = "#2563eb", *kOrange = "#ea580c", *kRed = "#dc2626";

std::string number(double value, const char* format = "%.1f") {
  char text[48];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

// From steps and losses to places on the picture.
struct Frame {
  double steps = 1, low = 0, high = 1, tick = 0.2, step_tick = 1;
  double x(double step) const { return kLeft + step / steps * (kWidth - kLeft - kRight); }
  double y(double loss) const {
    return kHeight - kBottom - (loss - low) / (high - low) * (kHeight - kTop - kBottom);
  }
};

// 1, 2 or 5 times a power of ten, so that about `count` ticks fill the range.
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

Frame frame_of(const std::vector<CurvePoint>& training, const std::vector<CurvePoint>& validation) {
  Frame frame;
  double low = training.front().loss, high = low;
  for (const auto* points : {&training, &validation})
    for (const CurvePoint& point : *points) {
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
  out += "<text transform=\"translate(20 " + number((kTop + bottom) / 2) + ") rotate(-90)\" " + small +
         " text-anchor=\"middle\">loss (nats a token)</text>\n";
  return out;
}

// One polyline for each stretch of losses that are drawn.
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

// An exponential mean over about a fiftieth of the run; over less where the run begins, so that it does not
// lag. One that is not drawn does not count.
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

// Marks on the axis; those less than a pixel apart are one.
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

std::string legend_entry(double x, const std::string& colour, const std::string& text) {
  return line_of(x, 37, x + 24, 37, "stroke=\"" + colour + "\" stroke-width=\"3\" stroke-linecap=\"round\"") +
         text_at(x + 32, 41.5, text, "font-size=\"13\" fill=\"#2b3440\"");
}

std::string stroke_of(const std::string& colour, const std::string& width) {
  return "stroke=\"" + colour + "\" stroke-width=\"" + width + "\"";
}

}  // namespace

bool is_loss_curve(const std::filesystem::path& file) {
  const std::string_view head = kLossCurveHead;
  return beginning_of(file, head.size()) == head;
}

std::string loss_curve_svg(const std::vector<CurvePoint>& all_training,
                           const std::vector<CurvePoint>& all_validation) {
  const std::vector<CurvePoint> training = drawn_points(all_training),
                                validation = drawn_points(all_validation);
  const auto skipped = std::count_if(all_training.begin(), all_training.end(),
                                     [](const CurvePoint& point) { return point.skipped; });
  std::string out = std::string(kLossCurveHead) + "<rect width=\"960\" height=\"540\" fill=\"#ffffff\"/>\n";
  out += text_at(kLeft, 42, "Loss", "font-size=\"20\" font-weight=\"600\" fill=\"#1b2430\"");
  if (training.empty())
    return out + text_at(kLeft, kHeight / 2, "No finite loss", "font-size=\"16\"") + "</svg>\n";
  Frame frame = frame_of(training, validation);
  frame.steps = std::max(frame.steps, static_cast<double>(all_training.back().step + 1));
  const std::vector<CurvePoint> mean = running_mean(all_training);
  out += axes(frame);
  out += polylines(frame, all_training, stroke_of(kBlue, "1") + " stroke-opacity=\"0.25\"");
  out += polylines(frame, mean, stroke_of(kBlue, "2.5"));
  out += skipped_marks(frame, all_training);
  if (skipped > 0) out += legend_entry(kWidth - 580, kRed, "skipped, " + std::to_string(skipped));
  out += legend_entry(kWidth - 400, kBlue, "training, now " + number(drawn_points(mean).back().loss, "%.3f"));
  if (!validation.empty()) {
    out += polylines(frame, all_validation, stroke_of(kOrange, "2"));
    for (const CurvePoint& point : validation)
      out += "<circle cx=\"" + number(frame.x(static_cast<double>(point.step + 1))) + "\" cy=\"" +
             number(frame.y(point.loss)) + "\" r=\"3.5\" fill=\"" + kOrange + "\"/>\n";
    out += legend_entry(kWidth - 205, kOrange, "validation, now " + number(validation.back().loss, "%.3f"));
  }
  return out + "</svg>\n";
}

}  // namespace heddle

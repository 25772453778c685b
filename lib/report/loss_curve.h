// Plot of a run's loss.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace heddle {

inline constexpr const char* kLossCurve = "loss.svg";  // in checkpoint_dir

struct CurvePoint {
  int64_t step = 0;
  double loss = 0;
  bool skipped = false;  // the update was skipped
};

// Beginning of the SVG file, and a test whether a file begins with it.
inline constexpr const char* kLossCurveHead =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 960 540\" width=\"960\" height=\"540\" "
    "font-family=\"system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif\">\n";
bool is_loss_curve(const std::filesystem::path& file);

// By name of the validation set; "" is validation_dataset.
using ValidationCurves = std::map<std::string, std::vector<CurvePoint>>;

// Returns an SVG of 960 x 540 with the training loss per step, its running mean, and the losses of each
// validation set, with axes, labels, and a legend with the last loss of each line. Lines have a gap at a loss
// that is not finite or whose update was skipped; if no loss is left, the plot says so. Skipped steps have a
// red mark on the axis.
std::string loss_curve_svg(const std::vector<CurvePoint>& training, const ValidationCurves& validation);

}  // namespace heddle

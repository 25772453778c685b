// The loss of a run as a picture.
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
  bool skipped = false;  // its update
};

// How such a picture begins, and whether a file does.
inline constexpr const char* kLossCurveHead =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 960 540\" width=\"960\" height=\"540\" "
    "font-family=\"system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif\">\n";
bool is_loss_curve(const std::filesystem::path& file);

// Of each validation set, by its name; "" is that of validation_dataset.
using ValidationCurves = std::map<std::string, std::vector<CurvePoint>>;

// An SVG of 960 x 540: the training loss of each step, its running mean, and the losses of each validation
// set, with axes, labels and a legend that has the last loss of each line. Lines have a gap where a loss is
// not finite or its update was skipped; with no loss left the picture says so. Skipped steps have a red mark
// on the axis.
std::string loss_curve_svg(const std::vector<CurvePoint>& training, const ValidationCurves& validation);

}  // namespace heddle

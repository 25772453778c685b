// The loss of a run as a picture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle {

struct CurvePoint {
  int64_t step = 0;
  double loss = 0;
};

// An SVG of 960 x 540: the training loss of each step, its running mean, and the validation losses, with
// axes, labels and a legend. Points that are not finite are left out; with none at all the picture says so.
std::string loss_curve_svg(const std::vector<CurvePoint>& training,
                           const std::vector<CurvePoint>& validation);

}  // namespace heddle

// The metrics of a run that goes on: the lines of steps that it will run again are taken away.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "trainer/loop/loss_curve.h"

namespace heddle {

// Keeps the lines of steps before `step` and gives their losses; a line cut by a crash goes too. The file is
// replaced whole, or left alone where nothing goes, there is none, or it is a pipe or a device. Throws
// Error{io}.
std::vector<CurvePoint> keep_before(const std::filesystem::path& file, int64_t step);

}  // namespace heddle

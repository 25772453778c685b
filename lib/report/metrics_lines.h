// The metrics of a run that goes on: the lines of steps that it will run again are taken away.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "lib/report/loss_curve.h"

namespace heddle {

// Keeps the lines of steps before `step` and gives their losses; a line cut by a crash goes too. The file is
// replaced whole, or left alone where nothing goes, there is none, or it is a pipe or a device. Throws
// Error{io}.
std::vector<CurvePoint> keep_before(const std::filesystem::path& file, int64_t step);

// The loss in a file's line of that step, the last one; nan where it was not finite. Empty: there is none.
std::optional<double> loss_at(const std::filesystem::path& file, int64_t step);

// Whether the first line is one of metrics.
bool begins_with_metrics(const std::filesystem::path& file);

}  // namespace heddle

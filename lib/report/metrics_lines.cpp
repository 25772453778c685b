// The metrics of a run that goes on.
#include "lib/report/metrics_lines.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "core/base/regular_file.h"
#include "lib/checkpoint/safetensors/file_writer.h"

namespace heddle {

namespace {

// A line of metrics; nothing where it is something else, or cut.
std::optional<CurvePoint> read_metrics_line(const std::string& line) {
  const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("step") || !parsed["step"].is_number_integer())
    return std::nullopt;
  const nlohmann::json loss = parsed.value("loss", nlohmann::json()),
                       skipped = parsed.value("skipped", nlohmann::json());
  return CurvePoint{parsed["step"], loss.is_number() ? loss.get<double>() : std::nan(""),
                    skipped.is_boolean() && skipped.get<bool>()};
}

}  // namespace

std::optional<double> loss_at(const std::filesystem::path& file, int64_t step) {
  const std::string begin = "{\"step\":" + std::to_string(step) + ",";
  std::ifstream in(file, std::ios::binary);
  std::optional<double> loss;
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(begin))
      if (const std::optional<CurvePoint> point = read_metrics_line(line)) loss = point->loss;
  return loss;
}

bool begins_with_metrics(const std::filesystem::path& file) {
  constexpr size_t kLongestLine = 1 << 20;
  const std::string begin = beginning_of(file, kLongestLine);
  return read_metrics_line(begin.substr(0, begin.find('\n'))).has_value();
}

std::vector<CurvePoint> keep_before(const std::filesystem::path& file, int64_t step) {
  std::vector<CurvePoint> points;
  std::error_code missing;
  if (!std::filesystem::is_regular_file(file, missing)) return points;
  std::ifstream in(file, std::ios::binary);
  std::string kept, line;
  while (std::getline(in, line)) {
    const std::optional<CurvePoint> point = read_metrics_line(line);
    if (!point || point->step >= step) continue;
    kept += line + "\n";
    points.push_back(*point);
  }
  const auto size = std::filesystem::file_size(file, missing);
  if (missing || size == kept.size()) return points;
  checkpoint::FileWriter writer(file);
  writer.write(kept.data(), kept.size());
  writer.finish();
  return points;
}

}  // namespace heddle

// The metrics of a run that goes on.
#include "trainer/loop/kept_lines.h"

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "heddle/checkpoint/file_writer.h"

namespace heddle {

std::vector<CurvePoint> keep_before(const std::filesystem::path& file, int64_t step) {
  std::vector<CurvePoint> points;
  std::error_code missing;
  if (!std::filesystem::is_regular_file(file, missing)) return points;
  std::ifstream in(file, std::ios::binary);
  std::string kept, line;
  while (std::getline(in, line)) {
    const auto parsed = nlohmann::json::parse(line, nullptr, false);
    if (!parsed.is_object() || !parsed.contains("step") || !parsed["step"].is_number_integer()) continue;
    const int64_t at = parsed["step"];
    if (at >= step) continue;
    kept += line + "\n";
    const auto loss = parsed.value("loss", nlohmann::json());
    points.push_back({at, loss.is_number() ? loss.get<double>() : std::numeric_limits<double>::quiet_NaN()});
  }
  const auto size = std::filesystem::file_size(file, missing);
  if (missing || size == kept.size()) return points;
  checkpoint::FileWriter writer(file);
  writer.write(kept.data(), kept.size());
  writer.finish();
  return points;
}

}  // namespace heddle

// Chooses the metrics files of a run: continued, renamed, or new.
#include "lib/report/metrics_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/base/regular_file.h"
#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/safetensors/file_writer.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

using MetricsPaths = std::vector<fs::path>;

// Returns training.2.jsonl for training.jsonl and 2; 0: the name itself.
fs::path numbered_name(const fs::path& file, int number) {
  if (number == 0) return file;
  return file.parent_path() /
         (file.stem().string() + "." + std::to_string(number) + file.extension().string());
}

MetricsPaths numbered_name(const MetricsPaths& files, int number) {
  MetricsPaths out;
  for (const fs::path& file : files) out.push_back(numbered_name(file, number));
  return out;
}

// Returns the numbers under which any of the files exists.
std::set<int> numbers_taken(const MetricsPaths& files) {
  std::set<int> out;
  for (const fs::path& file : files) {
    const std::string before = file.stem().string() + ".", after = file.extension().string();
    std::error_code none;
    const fs::path parent = file.parent_path();
    for (const fs::directory_entry& entry : fs::directory_iterator(parent.empty() ? "." : parent, none)) {
      const std::string name = entry.path().filename().string();
      if (name == file.filename()) out.insert(0);
      if (name.size() <= before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after))
        continue;
      const std::string digits = name.substr(before.size(), name.size() - before.size() - after.size());
      if (digits.size() < 7 &&
          std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }))
        out.insert(std::stoi(digits));
    }
  }
  return out;
}

Error cannot_take(const fs::path& file, const char* what, int number) {
  return Error(ErrorCode::io, file.string(), std::string("cannot be ") + what + ": " + std::strerror(number),
               "choose another file with --metrics, or another checkpoint.checkpoint_dir");
}

// Creates the file; returns false if it exists, for example because another process has just created it.
bool claim_file(const fs::path& file) {
  if (file.has_parent_path()) checkpoint::make_directories(file.parent_path());
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor < 0 && errno != EEXIST) throw cannot_take(file, "written", errno);
  if (descriptor >= 0) ::close(descriptor);
  return descriptor >= 0;
}

void rename_file(const fs::path& from, const fs::path& to) {
  std::error_code failed;
  fs::rename(from, to, failed);
  if (failed) throw cannot_take(from, ("renamed to " + to.string()).c_str(), failed.value());
}

// Renames the files of another run to the next free number, and returns it. A process that still writes to
// one continues under the new name.
int set_aside(const MetricsPaths& files) {
  const std::set<int> taken = numbers_taken(files);
  int number = taken.empty() ? 1 : *taken.rbegin() + 1;
  std::error_code none;
  for (const fs::path& file : files) {
    const fs::file_status status = fs::symlink_status(file, none);
    if (!fs::exists(status) || fs::is_directory(status)) continue;  // a directory is not a metrics file
    while (!claim_file(numbered_name(file, number))) ++number;      // claims the new name for this process
    rename_file(file, numbered_name(file, number));
  }
  return number;
}

// MetricsPaths that belong to one run.
struct MetricsGroup {
  MetricsPaths files;  // the first existing file determines the run
  bool owns;           // the names belong to this run, so other runs' files are renamed
  std::function<bool(const MetricsPaths&)> is_continued;
};

// Returns the group's files under the number that this run writes to.
MetricsPaths take_group(const MetricsGroup& group, std::vector<std::string>& notes) {
  const std::set<int> numbers = numbers_taken(group.files);
  const auto mine = std::find_if(numbers.begin(), numbers.end(), [&](int number) {
    return group.is_continued(numbered_name(group.files, number));
  });
  if (mine != numbers.end() && *mine == 0) return group.files;
  const std::string name = group.files.front().string(), other = " belongs to another run";
  if (!group.owns) {
    int number = numbers.empty() ? 0 : *numbers.rbegin() + 1;
    while (!claim_file(numbered_name(group.files.front(), number))) ++number;
    if (number > 0)
      notes.push_back(name + other + ": the metrics go to " +
                      numbered_name(group.files.front(), number).string());
    return numbered_name(group.files, number);
  }
  if (numbers.contains(0)) {
    const int number = set_aside(group.files);
    notes.push_back(name + other + ": renamed to " + numbered_name(group.files.front(), number).string());
  }
  std::error_code none;
  if (mine != numbers.end())
    for (const fs::path& file : group.files)
      if (fs::exists(numbered_name(file, *mine), none)) rename_file(numbered_name(file, *mine), file);
  return group.files;
}

// Whether a file has the step with that loss. Losses are written with round-trip precision.
bool has_step(const fs::path& file, int64_t step, double loss) {
  const std::optional<double> there = loss_at(file, step);
  return there && (*there == loss || (std::isnan(*there) && !std::isfinite(loss)));
}

bool is_plain_file(const fs::path& file) {
  std::error_code none;
  const fs::file_status status = fs::status(file, none);
  return !fs::exists(status) || fs::is_regular_file(status);
}

fs::path validation_file(const MetricsOwner& run, const std::string& set) {
  return run.directory / (set.empty() ? "validation.jsonl" : "validation_" + set + ".jsonl");
}

// Returns the files in checkpoint_dir next to training.jsonl.
MetricsPaths files_beside(const MetricsOwner& run) {
  MetricsPaths files = validation_files(run);
  if (run.saves) files.push_back(run.directory / kLossCurve);
  return files;
}

bool continues_training(const MetricsOwner& run, const MetricsPaths& files) {
  return run.resumed && has_step(files.front(), run.resumed->step - 1, run.resumed->training);
}

// For validation files without a training.jsonl next to them, because --metrics names another file.
bool continues_validation(const MetricsOwner& run, const MetricsPaths& files) {
  std::error_code none;
  if (!run.resumed || !fs::equivalent(run.resumed->checkpoint.parent_path(), run.directory, none))
    return false;
  for (size_t i = 0; i < run.sets.size(); ++i) {
    const auto loss = run.resumed->validation.find(run.sets[i]);
    if (loss != run.resumed->validation.end()) return has_step(files[i], run.resumed->step - 1, loss->second);
  }
  return files == files_beside(run);
}

// Returns the lines of the steps before this run's; an owed validation is repeated.
std::vector<CurvePoint> kept_points(const MetricsOwner& run, const fs::path& file, bool is_owed = false) {
  return run.resumed ? keep_before(file, run.resumed->step - (is_owed ? 1 : 0)) : std::vector<CurvePoint>();
}

// Parses a line of metrics; empty for other or truncated lines.
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

MetricsFiles take_metrics_files(const MetricsOwner& run) {
  MetricsFiles out;
  const auto training = [&](const MetricsPaths& files) { return continues_training(run, files); };
  MetricsPaths beside = files_beside(run);
  out.training = run.training;
  if (!run.is_named) {
    beside.insert(beside.begin(), run.training);
    beside = take_group({beside, run.saves, training}, out.notes);
    out.training = beside.front();
    beside.erase(beside.begin());
  } else {
    if (is_plain_file(run.training)) take_group({{run.training}, true, training}, out.notes);
    const auto validation = [&](const MetricsPaths& files) { return continues_validation(run, files); };
    if (!beside.empty()) beside = take_group({beside, run.saves, validation}, out.notes);
  }
  if (is_plain_file(out.training)) out.trained = kept_points(run, out.training);
  for (size_t i = 0; i < run.sets.size(); ++i) {
    const std::string& set = run.sets[i];
    out.validation[set] = beside[i];
    out.validated[set] = kept_points(run, beside[i], run.resumed && run.resumed->owed.contains(set));
  }
  if (run.has_samples) {
    out.samples = beside[run.sets.size()];
    kept_points(run, out.samples, run.resumed && !run.resumed->owed.empty());
  }
  return out;
}

std::vector<fs::path> validation_files(const MetricsOwner& run) {
  MetricsPaths files;
  for (const std::string& set : run.sets) files.push_back(validation_file(run, set));
  if (run.has_samples) files.push_back(run.directory / "samples.jsonl");
  return files;
}

std::optional<double> loss_at(const fs::path& file, int64_t step) {
  const std::string begin = "{\"step\":" + std::to_string(step) + ",";
  std::ifstream in(file, std::ios::binary);
  std::optional<double> loss;
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(begin))
      if (const std::optional<CurvePoint> point = read_metrics_line(line)) loss = point->loss;
  return loss;
}

bool begins_with_metrics(const fs::path& file) {
  constexpr size_t kLongestLine = 1 << 20;
  const std::string begin = read_beginning(file, kLongestLine);
  return read_metrics_line(begin.substr(0, begin.find('\n'))).has_value();
}

std::vector<CurvePoint> keep_before(const fs::path& file, int64_t step) {
  std::vector<CurvePoint> points;
  std::error_code missing;
  if (!fs::is_regular_file(file, missing)) return points;
  std::ifstream in(file, std::ios::binary);
  std::string kept, line;
  while (std::getline(in, line)) {
    const std::optional<CurvePoint> point = read_metrics_line(line);
    if (!point || point->step >= step) continue;
    kept += line + "\n";
    points.push_back(*point);
  }
  const auto size = fs::file_size(file, missing);
  if (missing || size == kept.size()) return points;
  checkpoint::FileWriter writer(file);
  writer.write(kept.data(), kept.size());
  writer.finish();
  return points;
}

}  // namespace heddle

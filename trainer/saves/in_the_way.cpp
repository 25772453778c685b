// Names of checkpoints that are there, against the steps that will be saved.
#include "trainer/saves/in_the_way.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <system_error>

#include "heddle/base/error.h"
#include "trainer/saves/resume.h"
#include "trainer/saves/save.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

// The steps from `first` on whose checkpoint's name is taken, by a whole one or not.
std::set<int64_t> taken_from(const Job& job, int64_t first) {
  std::set<int64_t> out;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(job.recipe.checkpoint.directory, none)) {
    const std::optional<int64_t> step = steps_of(entry.path());
    if (!step || *step < first || *step >= job.scheduler.total_steps()) continue;
    if (directory_of(job, job.scheduler.at(*step)).filename() == entry.path().filename()) out.insert(*step);
  }
  return out;
}

// Why the run begins with its first step beside checkpoints of its own: LATEST names another model's.
std::string latest_of_another(const Job& job) {
  if (job.resume || job.latest.empty()) return "";
  const std::string other = other_model(fs::path(job.recipe.checkpoint.directory) / job.latest, job);
  return other.empty() ? "" : "; LATEST names " + job.latest + ", which is of another model: " + other;
}

std::string what_to_do(const Job& job, bool is_other_model) {
  const std::string fresh = "point checkpoint.checkpoint_dir at a fresh directory";
  if (is_other_model) return fresh;
  const std::string own = latest_of_another(job).empty() ? "" : newest_of_this_model(job);
  if (!own.empty())
    return "--checkpoint.restore_from " + own + " goes on from the newest checkpoint of this model; or " +
           fresh;
  return "remove it and those after it, or " + fresh +
         (job.resume ? " and checkpoint.restore_from at " + job.resume->directory.string() : "");
}

}  // namespace

void refuse_what_is_in_the_way(Job& job) {
  if (!job.recipe.checkpoint.enabled) return;
  const int64_t first = job.resume ? job.resume->position.step : 0;
  job.taken = taken_from(job, first);
  const auto met = std::find_if(job.taken.begin(), job.taken.end(),
                                [&](int64_t step) { return job.scheduler.at(step).checkpoint; });
  if (met == job.taken.end()) return;
  const fs::path there = directory_of(job, job.scheduler.at(*met));
  const std::string other = other_model(there, job);
  throw Error(ErrorCode::config, "checkpoint.checkpoint_dir",
              there.string() + " is in the way: the run begins with step " + std::to_string(first + 1) +
                  " and would save there after step " + std::to_string(*met + 1) +
                  (other.empty() ? latest_of_another(job) : "; it is of another model: " + other),
              what_to_do(job, !other.empty()));
}

}  // namespace heddle

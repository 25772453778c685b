// Names of checkpoints that are there, against the steps that will be saved.
#include "trainer/loop/in_the_way.h"

#include <filesystem>
#include <optional>
#include <string>

#include "heddle/base/error.h"
#include "trainer/loop/resume.h"
#include "trainer/loop/save.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

// The first step from `first` on whose checkpoint is there already.
std::optional<Moment> first_met(const Job& job, int64_t first) {
  for (const fs::path& there : checkpoints_in(job.recipe.checkpoint.directory)) {
    const std::string name = there.filename().string();
    const int64_t step = std::stoll(name.substr(name.rfind('_') + 1));
    if (step < first || step >= job.scheduler.total_steps()) continue;
    const Moment moment = job.scheduler.at(step);
    if (moment.checkpoint && directory_of(job, moment).filename() == name) return moment;
  }
  return std::nullopt;
}

}  // namespace

void refuse_what_is_in_the_way(const Job& job) {
  if (!job.recipe.checkpoint.enabled) return;
  const int64_t first = job.resume ? job.resume->position.step : 0;
  const std::optional<Moment> met = first_met(job, first);
  if (!met) return;
  throw Error(
      ErrorCode::config, "checkpoint.checkpoint_dir",
      directory_of(job, *met).string() + " is in the way: the run begins with step " +
          std::to_string(first + 1) + " and would save there after step " + std::to_string(met->step + 1),
      "remove it and those after it, or point checkpoint.checkpoint_dir at a fresh directory" +
          std::string(job.resume ? " and checkpoint.restore_from at " + job.resume->directory.string() : ""));
}

}  // namespace heddle

// Runs that are asked to end, and their resumption.
#include "stopping.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <regex>

namespace flow {
namespace {

namespace fs = std::filesystem;

std::string tensor_lines(const std::string& run) {
  const std::string newest = run + "/" + fs::read_symlink(run + "/LATEST").string();
  return read_text(newest + "/model/manifest.json") + read_text(newest + "/optim/manifest.json");
}

}  // namespace

bool under_way(const TrainingFiles& files) {
  return eventually([&] { return column(files.path("run/training.jsonl"), "step").size() > 2; });
}

int64_t step_of(const std::string& output) {
  std::smatch found;
  const std::regex line(
      "stopped by SIG[A-Z0-9]+ after step ([0-9]+) of 1000000: saved ([^;]*); the same command");
  return std::regex_search(output, found, line) ? std::stoll(found[1]) : -1;
}

size_t checkpoints(const TrainingFiles& files) {
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(files.path("run")))
    count += entry.path().filename().string().starts_with("epoch_");
  return count;
}

void expect_goes_on(const TrainingFiles& files, const Words& words, int64_t steps) {
  const Words to = {"--step_scheduler.max_steps", std::to_string(steps + 3), "--step_scheduler.num_epochs",
                    "1000000"};
  const Outcome rest = heddle(plus(files.train("run", words), to));
  ASSERT_EQ(rest.status, 0) << rest.error;
  EXPECT_THAT(rest.out, ::testing::HasSubstr("continues with step " + std::to_string(steps + 1) + " of "));
  const Outcome whole = heddle(plus(files.train("whole", words), to));
  ASSERT_EQ(whole.status, 0) << whole.error;
  EXPECT_EQ(without_clock(files.path("run/training.jsonl")),
            without_clock(files.path("whole/training.jsonl")));
  EXPECT_EQ(tensor_lines(files.path("run")), tensor_lines(files.path("whole")));
}

}  // namespace flow

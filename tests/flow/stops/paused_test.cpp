// Ctrl-Z and `fg`: a run whose processes were all stopped continues, bit for bit.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "stopping.h"
#include "tests/main/with_all.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("Paused.*");

// Returns the state of a process from /proc.
char process_state(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  return name_end + 2 < line.size() ? line[name_end + 2] : '?';
}

TEST(Paused, ContinuesAfterATerminalPause) {
  const TrainingFiles files;
  const Words two = {"--nproc-per-node", "2"};
  Started run(plus(files.train("run", two), kLong));
  ASSERT_TRUE(under_way(files));
  std::vector<pid_t> processes = run.children();
  ASSERT_EQ(processes.size(), 2u);
  processes.push_back(run.pid());
  kill(-run.pid(), SIGTSTP);  // what a terminal sends on Ctrl-Z
  for (const pid_t process : processes)
    ASSERT_TRUE(eventually([&] { return process_state(process) == 'T'; }));
  const size_t before = column(files.path("run/training.jsonl"), "step").size();
  std::this_thread::sleep_for(std::chrono::seconds(5));  // longer than any silence that counts as a death
  kill(-run.pid(), SIGCONT);
  const auto goes_on = [&] { return column(files.path("run/training.jsonl"), "step").size() > before + 2; };
  ASSERT_TRUE(eventually(goes_on));
  std::this_thread::sleep_for(std::chrono::seconds(2));  // time until a lost rank would end the run
  kill(run.pid(), SIGTERM);
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.status, 143) << outcome.error;
  EXPECT_THAT(outcome.error, ::testing::Not(::testing::HasSubstr("error[")));
  const int64_t step = step_of(outcome.out);
  ASSERT_GT(step, 2) << outcome.out;
  expect_goes_on(files, two, step);
}

}  // namespace
}  // namespace flow

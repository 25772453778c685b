// Runs with one killed rank that the launcher restarts without help.
#include "restarts.h"

#include <random>

#include "ends.h"

namespace kills {

namespace fs = std::filesystem;

int restart_after_kills(const Training& training, const fs::path& folder, int runs, uint64_t seed) {
  constexpr int kSteps = 8;
  const Training some = up_to(training, kSteps);
  const fs::path whole = folder / "undisturbed", cut = folder / "restarted";
  const End undisturbed = live_again(some, whole, KillPoint{}, 1);
  if (undisturbed.status != 0) throw Broken{"the undisturbed run failed: " + undisturbed.errors};
  const std::string wanted = end_of(whole);
  const auto all = static_cast<uint64_t>(operations());
  std::mt19937_64 random(seed);
  int restarts = 0;
  for (int run = 0; run < runs; ++run) {
    fs::remove_all(cut);
    KillPoint one;
    one.when = static_cast<KillPoint::When>(random() % 4);
    one.operation = static_cast<int64_t>(1 + random() % all);
    one.microseconds = static_cast<int64_t>(random() % 4000);
    const End end = live_again(some, cut, one, 1);
    const std::string tale = "operation " + std::to_string(one.operation) + ": ";
    if (end.status != 0) throw Broken{tale + "status " + std::to_string(end.status) + ", " + end.errors};
    restarts += end.errors.find("restart 1 of 1: all ranks are started again") != std::string::npos;
    check_whole(cut);
    if (end_of(cut) != wanted) throw Broken{tale + "the end is another one than that of the undisturbed run"};
  }
  if (restarts == 0) throw Broken{"no rank was started again"};
  return restarts;
}

}  // namespace kills

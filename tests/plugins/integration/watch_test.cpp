// Messages of a kit that does not end: the rank that computes, and the ranks that wait for it.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "sdk/kits/attempt.h"
#include "sdk/kits/watch.h"

namespace heddle::tests {

using namespace kits;

namespace {

TEST(Watch, NamesTheRankThatLoopsBeforeWaitingRanks) {
  const auto end = std::make_shared<std::atomic<bool>>(false);
  const auto until_the_end = [end] {
    while (!*end) std::this_thread::yield();
  };
  KitOptions options;
  options.time_limit = 1;
  const Report report = run_watched(options, [until_the_end] {
    Watch* const watch = Watch::current();
    Attempts attempt(*watch);
    attempt("a kit", [&] {
      std::thread waits([&] {
        const Watch::Rank here(watch, 0);
        const RunningCall::Scope call("mine", "forward()");
        const Watch::Waiting waiting;
        until_the_end();
      });
      std::thread loops([&] {
        const Watch::Rank here(watch, 1);
        const RunningCall::Scope call("mine", "backward()");
        until_the_end();
      });
      waits.join();
      loops.join();
      return std::string();
    });
  });
  *end = true;
  ASSERT_EQ(report.checks.size(), 1u);
  EXPECT_EQ(report.checks.front().detail,
            "it did not end within 1 s: rank 1 is in 'mine': backward(); rank 0 waits for other ranks in "
            "'mine': forward()");
}

}  // namespace
}  // namespace heddle::tests

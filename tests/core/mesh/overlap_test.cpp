// Two parts that switch where they wait, independent of timing.
#include "core/mesh/overlap.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::thrown_by;
using Deeds = std::vector<std::string>;

struct NoWork : Work {
  void wait() override {}
};

// Performs `count` actions and waits after each except the last.
auto worker(Overlap& overlap, Deeds& deeds, const std::string& name, int count) {
  return [&overlap, &deeds, name, count] {
    NoWork work;
    for (int i = 1; i <= count; ++i) {
      deeds.push_back(name + std::to_string(i));
      if (i < count) overlap.wait(work);
    }
  };
}

TEST(Overlap, SwitchesAtEachWaitAndAtTheEnd) {
  Overlap overlap(c10::kCPU);
  for (int round = 0; round < 100; ++round) {
    Deeds deeds;
    overlap.run(worker(overlap, deeds, "a", 3), worker(overlap, deeds, "b", 2));
    EXPECT_THAT(deeds, ElementsAre("a1", "b1", "a2", "b2", "a3"));
    deeds.clear();
    overlap.run(worker(overlap, deeds, "a", 2), worker(overlap, deeds, "b", 4));
    EXPECT_THAT(deeds, ElementsAre("a1", "b1", "a2", "b2", "b3", "b4"));
  }
  EXPECT_FALSE(overlap.is_running());
}

TEST(Overlap, UsesNoOtherThreadWithoutAWait) {
  Overlap overlap(c10::kCPU);
  std::vector<std::thread::id> threads;
  const auto part = [&] { threads.push_back(std::this_thread::get_id()); };
  overlap.run(part, part);
  EXPECT_THAT(threads, ElementsAre(std::this_thread::get_id(), std::this_thread::get_id()));
}

TEST(Overlap, PassesTheCallersStateToTheOtherThread) {
  Overlap overlap(c10::kCPU);
  const int threads = at::get_num_threads();
  at::set_num_threads(threads + 1);
  const at::NoGradGuard no_gradients;
  bool gradients = true;
  int got = 0;
  std::thread::id there;
  overlap.run([&] { overlap.hand_over(); },
              [&] {
                gradients = at::GradMode::is_enabled();
                got = at::get_num_threads();
                there = std::this_thread::get_id();
              });
  at::set_num_threads(threads);
  EXPECT_FALSE(gradients);
  EXPECT_EQ(got, threads + 1);
  EXPECT_NE(there, std::this_thread::get_id());
}

TEST(Overlap, DoesNotSwitchInsideAHold) {
  Overlap overlap(c10::kCPU);
  Deeds deeds;
  overlap.run(
      [&] {
        const Overlap::Hold hold;
        worker(overlap, deeds, "a", 3)();
      },
      worker(overlap, deeds, "b", 2));
  EXPECT_THAT(deeds, ElementsAre("a1", "a2", "a3", "b1", "b2"));
}

// Fails at its second action.
auto failing(Overlap& overlap, Deeds& deeds, const std::string& name) {
  return [&overlap, &deeds, name] {
    worker(overlap, deeds, name, 1)();
    overlap.hand_over();
    throw Error(ErrorCode::input, "test", name + " fails");
  };
}

TEST(Overlap, EndsTheOtherPartAtItsNextWaitAfterAnError) {
  Overlap overlap(c10::kCPU);
  Deeds deeds;
  EXPECT_THAT(thrown_by([&] { overlap.run(failing(overlap, deeds, "a"), worker(overlap, deeds, "b", 3)); }),
              HasSubstr("a fails"));
  EXPECT_THAT(deeds, ElementsAre("a1", "b1"));
  deeds.clear();
  EXPECT_THAT(thrown_by([&] { overlap.run(worker(overlap, deeds, "a", 4), failing(overlap, deeds, "b")); }),
              HasSubstr("b fails"));
  EXPECT_THAT(deeds, ElementsAre("a1", "b1", "a2"));
  deeds.clear();
  EXPECT_THAT(thrown_by([&] {
                overlap.run([] { throw Error(ErrorCode::input, "test", "at once"); },
                            worker(overlap, deeds, "b", 2));
              }),
              HasSubstr("at once"));
  EXPECT_TRUE(deeds.empty());
  overlap.run(worker(overlap, deeds, "a", 2), worker(overlap, deeds, "b", 1));
  EXPECT_THAT(deeds, ElementsAre("a1", "b1", "a2"));
}

TEST(Overlap, MeasuresHowLongAPartWasAway) {
  Overlap overlap(c10::kCPU);
  const auto nap = std::chrono::milliseconds(20);
  Overlap::Clock::duration first{}, second{};
  overlap.run(
      [&] {
        overlap.hand_over();
        first = overlap.away();
      },
      [&] {
        std::this_thread::sleep_for(nap);
        second = overlap.away();
      });
  EXPECT_GE(first, nap);
  EXPECT_EQ(second, Overlap::Clock::duration{});
}

}  // namespace
}  // namespace heddle

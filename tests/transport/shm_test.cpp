// Ranks as processes with shared memory: the same bits as threads, concurrent groups and messages.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "heddle/base/error.h"
#include "heddle/transport/join.h"
#include "heddle/transport/threads.h"
#include "tests/main/with_all.h"
#include "transport/children.h"
#include "transport/exercise.h"

namespace heddle {
namespace {

HEDDLE_WITH_ALL("Sizes/Shm*:ShmFaults.*");

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::everyone;
using tests::expect_all_say;
using tests::Known;
using tests::run_ranks;

// Exercises the whole world and two groups of every second rank concurrently.
std::string exercised_halves(Rendezvous& rendezvous) {
  auto world = rendezvous.group("world", everyone(rendezvous));
  std::string text = tests::bytes(tests::exercise(*world));
  std::vector<int> half;
  for (int rank = rendezvous.rank() % 2; rank < rendezvous.world_size(); rank += 2) half.push_back(rank);
  auto group = rendezvous.group("half", half);
  return text + tests::bytes(tests::exercise(*group));
}

const Known kExerciseHalves("exercise_halves", exercised_halves);

class Shm : public ::testing::TestWithParam<int> {};

TEST_P(Shm, GivesTheSameBitsAsThreads) {
  std::vector<std::string> wanted(GetParam());
  ThreadWorld::run(GetParam(),
                   [&](Rendezvous& rendezvous) { wanted[rendezvous.rank()] = exercised_halves(rendezvous); });
  const auto run = run_ranks("exercise_halves", GetParam());
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_FALSE(run.left_behind);
  for (int rank = 0; rank < GetParam(); ++rank)
    EXPECT_TRUE(run.said.at(rank) == wanted[rank]) << "rank " << rank;
}

INSTANTIATE_TEST_SUITE_P(Sizes, Shm, ::testing::Values(2, 3, 5));

// A rank does its own part of the work when it posts, so no rank waits for the late rank in the middle.
const Known kCrossed("crossed_waits", [](Rendezvous& rendezvous) {
  auto pair = rendezvous.group("pp", everyone(rendezvous)),
       other = rendezvous.group("dp", everyone(rendezvous));
  auto big = at::ones({3000000}), small = at::full({3}, 1.0 + rendezvous.rank());
  auto got = at::empty({2000000});
  auto posted = pair->all_reduce(big);
  if (rendezvous.rank() == 0) {
    posted->wait();
    other->all_reduce(small)->wait();
    other->send(big.narrow(0, 0, 2000000), 1, 1)->wait();
  } else {
    other->all_reduce(small)->wait();
    other->receive(got, 0, 1)->wait();
    posted->wait();
  }
  return std::to_string(big.sum().item<double>()) + " " + std::to_string(small[0].item<double>());
});

TEST(ShmOrder, RanksMayWaitForGroupsInAnotherOrder) {
  expect_all_say(run_ranks("crossed_waits", 2), 2, "6000000.000000 3.000000");
}

// Messages of up to some megabytes, received in reverse order, two per tag.
const Known kTags("many_tags", [](Rendezvous& rendezvous) {
  auto group = rendezvous.group("pp", everyone(rendezvous));
  constexpr int kTags = 40;
  const auto length = [](int i) { return (i % 7 == 3 ? 300000 : 1000) + 17 * i; };
  const int next = (rendezvous.rank() + 1) % rendezvous.world_size();
  const int last = (rendezvous.rank() + rendezvous.world_size() - 1) % rendezvous.world_size();
  std::vector<std::unique_ptr<Work>> sends;
  for (int i = 0; i < 2 * kTags; ++i)
    sends.push_back(group->send(tests::input(rendezvous.rank(), i, length(i), at::kFloat), next, i % kTags));
  int wrong = 0;
  for (int tag = kTags; tag-- > 0;) {
    for (const int i : {tag, tag + kTags}) {
      auto got = at::empty({length(i)});
      group->receive(got, last, tag)->wait();
      wrong += tests::same(got, tests::input(last, i, length(i), at::kFloat)) ? 0 : 1;
    }
  }
  for (auto& send : sends) send->wait();
  return std::to_string(wrong) + " wrong";
});

TEST(ShmOrder, MessagesFindTheirTagsInAnyOrder) {
  expect_all_say(run_ranks("many_tags", 3), 3, "0 wrong");
}

// Far more messages than fit at once. Odd ranks wait in reverse order.
const Known kUnderWay("many_under_way", [](Rendezvous& rendezvous) {
  auto group = rendezvous.group("dp", everyone(rendezvous));
  std::vector<at::Tensor> values;
  std::vector<std::unique_ptr<Work>> works;
  constexpr int kMany = 150;
  for (int i = 0; i < kMany; ++i) {
    values.push_back(at::full({i % 10 == 0 ? 100000 : 5}, 1.0 + i));
    works.push_back(i % 3 == 2 ? group->broadcast(values.back(), i % rendezvous.world_size())
                               : group->all_reduce(values.back(), Reduce::average));
  }
  int wrong = 0;
  for (int i = 0; i < kMany; ++i) {
    const int at = rendezvous.rank() % 2 == 0 ? i : kMany - 1 - i;
    works[at]->wait();
    wrong += values[at].max().item<float>() == static_cast<float>(1 + at) ? 0 : 1;
    wrong += works[at]->done() ? 0 : 1;
  }
  return std::to_string(wrong) + " wrong";
});

TEST(ShmOrder, ManyCollectivesMayBeUnderWay) {
  expect_all_say(run_ranks("many_under_way", 3), 3, "0 wrong");
}

// Rank 0 posts, then only polls a file until rank 1 has received everything.
const Known kBehind("behind_compute", [](Rendezvous& rendezvous) {
  auto group = rendezvous.group("dp", everyone(rendezvous));
  auto whole = at::ones({8 << 20});
  auto work = group->all_reduce(whole);
  const std::string mark = std::string(std::getenv("HEDDLE_TEST_FOLDER")) + "/mark";
  if (rendezvous.rank() == 0) {
    while (!std::filesystem::exists(mark)) {
    }
  } else {
    work->wait();
    std::ofstream(mark) << "here";
  }
  if (rendezvous.rank() == 0) work->wait();
  return std::to_string(whole.sum().item<double>());
});

TEST(ShmOrder, AnotherRankIsServedWhileThisOneComputes) {
  expect_all_say(run_ranks("behind_compute", 2), 2, std::to_string(16.0 * (1 << 20)));
}

const Known kMismatch("mismatch", [](Rendezvous& rendezvous) {
  auto group = rendezvous.group("dp", everyone(rendezvous));
  auto value = at::ones({4});
  if (rendezvous.rank() == 0) group->all_reduce(value, Reduce::max)->wait();
  if (rendezvous.rank() == 1) group->reduce_scatter(at::empty({2}), value)->wait();
  return std::string("done");
});

TEST(ShmFaults, RanksThatCallDifferentCollectivesSayBoth) {
  const auto run = run_ranks("mismatch", 2);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.said.at(0) + run.said.at(1),
              HasSubstr("error[internal] mesh: ranks call different collectives on dp: rank "));
  EXPECT_THAT(run.said.at(0) + run.said.at(1), HasSubstr("all_reduce (max) of 4 Float"));
  EXPECT_THAT(run.said.at(0) + run.said.at(1), HasSubstr("reduce_scatter of 4 Float"));
}

// Each of the first two ranks acts as the root.
const Known kTwoRoots("two_roots", [](Rendezvous& rendezvous) {
  auto group = rendezvous.group("dp", everyone(rendezvous));
  group->broadcast(at::ones({4}), rendezvous.rank() == 1 ? 1 : 0)->wait();
  return std::string("done");
});

TEST(ShmFaults, RefuseTwoRootsInOneBroadcast) {
  const auto run = run_ranks("two_roots", 3);
  EXPECT_EQ(run.status, 1);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(run.said.at(rank),
                HasSubstr("error[internal] mesh: ranks call different collectives on dp: rank "));
    EXPECT_THAT(run.said.at(rank), HasSubstr("broadcast from 0 of 4 Float"));
    EXPECT_THAT(run.said.at(rank), HasSubstr("broadcast from 1 of 4 Float"));
  }
}

const Known kSizes("other_size", [](Rendezvous& rendezvous) {
  auto group = rendezvous.group("pp", everyone(rendezvous));
  if (rendezvous.rank() == 0) group->send(at::ones({4}), 1, 3)->wait();
  if (rendezvous.rank() == 1) group->receive(at::ones({5}), 0, 3)->wait();
  return std::string("done");
});

TEST(ShmFaults, RefuseAMessageOfAnotherSize) {
  const auto run = run_ranks("other_size", 2);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.said.at(1),
              HasSubstr("error[internal] mesh: on pp a message of 16 bytes meets a receive of 20"));
}

TEST(ShmFaults, NameTheLateRankWhenACollectiveTimesOut) {
  const auto run = run_ranks("late", 3, {.timeout = std::chrono::seconds(1)});
  EXPECT_EQ(run.status, 1);
  EXPECT_FALSE(run.left_behind);
  EXPECT_THAT(
      run.said.at(0) + run.said.at(2),
      ContainsRegex(
          "error.timeout. mesh: all_reduce on dp_shard did not end in [0-9.]+ s; rank 1 did not come"));
  EXPECT_THAT(run.said.at(1), HasSubstr("rank 1 is alive but did not come to all_reduce on dp_shard in "));
}

TEST(ShmFaults, BlameNoRankWhenEveryRankWaits) {
  const auto run = run_ranks("crossed", 2, {.timeout = std::chrono::seconds(1)});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.said.at(0) + run.said.at(1),
              HasSubstr("error[timeout] mesh: receive on pp did not end in "));
  EXPECT_THAT(run.said.at(0) + run.said.at(1), Not(HasSubstr("did not come")));
}

// Computes for longer than the timeout after which a silent rank counts as lost.
const Known kLong("computes_long", [](Rendezvous& rendezvous) {
  auto group = rendezvous.group("dp", everyone(rendezvous));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (rendezvous.rank() == 1 && std::chrono::steady_clock::now() < end) {
  }
  auto value = at::ones({3});
  group->all_reduce(value)->wait();
  return std::to_string(value[0].item<double>());
});

TEST(ShmFaults, WaitForARankThatComputesLong) {
  expect_all_say(run_ranks("computes_long", 2), 2, "2.000000");
}

}  // namespace
}  // namespace heddle

// Ranks as threads: every collective compared with a plain loop, and failing ranks.
#include "heddle/transport/threads.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/mesh/call.h"
#include "tests/thrown.h"
#include "transport/exercise.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

std::vector<int> all(int size) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Runs the world and returns the error that it throws.
Error error_of(ThreadWorld& world, const std::function<void(Rendezvous&)>& body) {
  try {
    world.run(body);
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::internal, "", "nothing was thrown");
}

class Threads : public ::testing::TestWithParam<int> {};

TEST_P(Threads, EqualAPlainLoopBitForBit) {
  std::mutex mutex;
  std::vector<std::string> wrong;
  ThreadWorld::run(GetParam(), [&](Rendezvous& rendezvous) {
    auto group = rendezvous.group("world", all(rendezvous.world_size()));
    for (const auto& outcome : tests::exercise(*group)) {
      const std::lock_guard lock(mutex);
      if (!tests::same(outcome.got, outcome.wanted)) wrong.push_back(outcome.what);
    }
  });
  EXPECT_THAT(wrong, ::testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Sizes, Threads, ::testing::Values(1, 2, 3, 4, 5));

TEST(Threads, SumsOf16BitFloatsAreRoundedOnce) {
  ThreadWorld::run(3, [](Rendezvous& rendezvous) {
    auto group = rendezvous.group("dp", all(3));
    // 256 + 1 + 1 is 258 in float32. Accumulation in bfloat16 would round back to 256 each time.
    auto value = at::full({1}, rendezvous.rank() == 0 ? 256.0 : 1.0, at::kBFloat16);
    group->all_reduce(value)->wait();
    EXPECT_EQ(value.item<float>(), 258.0f);
  });
}

TEST(Threads, PropagateNanInTheMaximum) {
  ThreadWorld::run(3, [](Rendezvous& rendezvous) {
    auto group = rendezvous.group("dp", all(3));
    auto value = at::full({1}, rendezvous.rank() == 1 ? std::numeric_limits<float>::quiet_NaN() : 5.0f);
    group->all_reduce(value, Reduce::max)->wait();
    EXPECT_TRUE(std::isnan(value.item<float>()));
  });
}

TEST(Threads, ExchangeGivesEveryTextInRankOrderAndAKeyMayComeBack) {
  ThreadWorld::run(3, [](Rendezvous& rendezvous) {
    for (const std::string round : {"a", "b"}) {
      EXPECT_THAT(rendezvous.exchange("key", round + std::to_string(rendezvous.rank())),
                  ::testing::ElementsAre(round + "0", round + "1", round + "2"));
    }
  });
}

TEST(Threads, GroupsOfDisjointRanksDoNotMeet) {
  ThreadWorld::run(4, [](Rendezvous& rendezvous) {
    const int first = rendezvous.rank() / 2 * 2;
    auto group = rendezvous.group("tp", std::vector<int>{first, first + 1});
    auto value = at::full({1}, rendezvous.rank());
    group->all_reduce(value)->wait();
    EXPECT_EQ(value.item<int64_t>(), 2 * first + 1);
    EXPECT_EQ(group->rank(), rendezvous.rank() - first);
  });
}

TEST(Threads, NameARankThatThrowsAndReleaseTheOthers) {
  std::atomic<int> released = 0;
  ThreadWorld world(3);
  try {
    world.run([&](Rendezvous& rendezvous) {
      auto group = rendezvous.group("dp_shard", all(3));
      if (rendezvous.rank() == 1) throw std::runtime_error("out of chalk");
      auto value = at::ones({4});
      try {
        group->all_reduce(value)->wait();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::rank_lost);
        EXPECT_EQ(error.message(),
                  "rank 1 failed: out of chalk; this rank waited for it in all_reduce on dp_shard");
        EXPECT_EQ(error.hint(), "see the output of rank 1 for the cause; then start the run again");
        ++released;
        throw;
      }
    });
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "out of chalk");
  }
  EXPECT_EQ(released, 2);
}

TEST(Threads, NameARankThatEndsWhileOthersWait) {
  ThreadWorld world(2);
  const Error error = error_of(world, [](Rendezvous& rendezvous) {
    if (rendezvous.rank() == 1) return;
    auto value = at::ones({1});
    rendezvous.group("dp", all(2))->all_reduce(value)->wait();
  });
  EXPECT_EQ(error.code(), ErrorCode::rank_lost);
  EXPECT_EQ(error.message(), "rank 1 ended its work; this rank waited for it in all_reduce on dp");
}

TEST(Threads, NameTheAbsentRanksOnATimeout) {
  ThreadWorld world(4, std::chrono::milliseconds(100));
  const Error error = error_of(world, [](Rendezvous& rendezvous) {
    if (rendezvous.rank() != 3) rendezvous.barrier("start");
    // Rank 3 waits for a message that is never sent, and the other ranks wait for rank 3.
    auto group = rendezvous.group("pp", all(4));
    group->receive(at::empty({1}), 0, 1)->wait();
  });
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_THAT(error.message(), HasSubstr("did not end in 0.1 s; rank"));
  EXPECT_THAT(error.message(), HasSubstr("did not come"));
}

TEST(Threads, DifferentCollectivesOnOneGroupAreToldApart) {
  ThreadWorld world(2);
  const Error error = error_of(world, [](Rendezvous& rendezvous) {
    auto group = rendezvous.group("tp", all(2));
    auto value = at::ones({rendezvous.rank() == 0 ? 4 : 6});
    group->all_reduce(value)->wait();
  });
  EXPECT_EQ(error.code(), ErrorCode::internal);
  EXPECT_EQ(
      error.message(),
      "ranks call different collectives on tp: rank 0 all_reduce of 4 Float, rank 1 all_reduce of 6 Float");
}

TEST(Threads, RefuseASendOfAnotherSizeOnBothSides) {
  ThreadWorld world(2);
  const Error error = error_of(world, [](Rendezvous& rendezvous) {
    auto group = rendezvous.group("pp", all(2));
    if (rendezvous.rank() == 0) group->send(at::ones({4}), 1, 0)->wait();
    if (rendezvous.rank() == 1) group->receive(at::ones({5}), 0, 0)->wait();
  });
  EXPECT_EQ(error.message(), "on pp a send to 1 of 4 Float meets a receive from 0 of 5 Float");
}

TEST(Communicator, RefusesTensorsThatDoNotFit) {
  AloneCommunicator group("dp");
  const auto message = [](auto call) {
    try {
      call()->wait();
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("nothing was thrown");
  };
  const auto t = [](int64_t n) { return at::ones({n}); };
  EXPECT_EQ(message([&] { return group.all_gather(t(3), t(2)); }),
            "all_gather on dp: out has 3 elements, 1 times 2 are gathered");
  EXPECT_EQ(message([&] { return group.reduce_scatter(t(3), t(2), Reduce::sum); }),
            "reduce_scatter on dp: in has 2 elements, 1 times 3 are needed");
  EXPECT_EQ(message([&] {
              return group.all_reduce(at::ones({2, 3}).t(), Reduce::sum);
            }),
            "all_reduce on dp: a tensor is not contiguous");
  EXPECT_EQ(message([&] { return group.all_gather(t(2), t(2).to(at::kHalf)); }),
            "all_gather on dp: out is Float and in is Half");
  EXPECT_EQ(message([&] { return group.broadcast(t(2), 1); }), "broadcast on dp: rank 1 is not in 0..0");
  EXPECT_EQ(message([&] { return group.send(t(2), 0, 0); }), "send on dp: the peer is this rank itself");
  const std::vector<int64_t> three = {3}, two = {2};
  EXPECT_EQ(message([&] { return group.all_to_all(t(3), t(3), three, two); }),
            "all_to_all on dp: in_rows names 1 row counts with sum 2; 1 ranks and 3 rows are there");
}

TEST(Communicator, RefusesToSumWhatHasNoSum) {
  AloneCommunicator group("dp");
  auto flags = at::ones({2}, at::kBool);
  EXPECT_THAT(tests::thrown_by([&] { group.all_reduce(flags, Reduce::sum); }),
              HasSubstr("ranks cannot be summed over Bool"));
}

}  // namespace
}  // namespace heddle

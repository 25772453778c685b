// Ranks as processes over Gloo: the same bits as threads, clean exits, late ranks.
#include "heddle/transport/join.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <mutex>
#include <thread>

#include "heddle/base/error.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/transport/threads.h"
#include "lib/transport/meeting/store_client.h"
#include "tests/main/with_all.h"
#include "tests/thrown.h"
#include "transport/children.h"
#include "transport/exercise.h"

namespace heddle {
namespace {

HEDDLE_WITH_ALL("Sizes/Gloo*:GlooMesh.*");

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using tests::everyone;
using tests::Known;
using tests::KnownPlain;
using tests::run_ranks;

std::string exercised_gloo(Rendezvous& rendezvous) {
  auto group = rendezvous.group("world", everyone(rendezvous));
  return tests::bytes(tests::exercise(*group));
}

const Known kExerciseGloo("exercise", exercised_gloo);

class Gloo : public ::testing::TestWithParam<int> {};

TEST_P(Gloo, GivesTheSameBitsAsThreads) {
  std::vector<std::string> wanted(GetParam());
  ThreadWorld::run(GetParam(),
                   [&](Rendezvous& rendezvous) { wanted[rendezvous.rank()] = exercised_gloo(rendezvous); });
  const auto run = run_ranks("exercise", GetParam(), {.shared_memory = 0});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_FALSE(run.left_behind);
  for (int rank = 0; rank < GetParam(); ++rank)
    EXPECT_TRUE(run.said.at(rank) == wanted[rank]) << "rank " << rank;
}

INSTANTIATE_TEST_SUITE_P(Sizes, Gloo, ::testing::Values(1, 2, 3, 5));

const Known kMesh("mesh", [](Rendezvous& rendezvous) {
  const Axis axes[] = {{"dp_shard", 2}, {"tp", 2}};
  const auto mesh = mesh::build(axes, rendezvous, "setup: 1");
  auto value = at::ones({1}, at::kLong).mul_(int64_t{1} << rendezvous.rank());
  mesh.group("dp_shard").all_reduce(value)->wait();
  mesh.group("tp").all_reduce(value)->wait();
  mesh.group("dp").all_reduce(value)->wait();
  return std::to_string(value.item<int64_t>());
});

TEST(GlooMesh, GroupsOfSeveralAxesWorkSideBySide) {
  const auto run = run_ranks("mesh", 4, {.shared_memory = 0});
  EXPECT_EQ(run.status, 0) << run.err;
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(run.said.at(rank), "30");
}

const Known kFingerprint("fingerprint", [](Rendezvous& rendezvous) {
  const Axis axes[] = {{"dp", 3}};
  mesh::build(axes, rendezvous, "setup: " + std::string(rendezvous.rank() == 2 ? "22" : "11"));
  return std::string("built");
});

TEST(GlooMesh, NamesARankWithAnotherSetupOnEveryRank) {
  const auto run = run_ranks("fingerprint", 3);
  EXPECT_EQ(run.status, 2);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(run.said.at(rank),
                HasSubstr("error[mesh] mesh: the ranks were not started alike: setup is 11 on "
                          "ranks 0, 1, 22 on rank 2"));
  }
}

constexpr std::chrono::seconds kSoon{5};

const KnownPlain kForgets("forgets", [](const RankPlace& place) {
  constexpr int kTimes = 50;
  const auto rendezvous = mesh::join(place, {});
  std::string fault;
  mesh::Greeting guest;
  guest.role = mesh::Greeting::Role::guest;
  mesh::StoreClient store(mesh::resolve(place.host, place.port, fault), guest, kSoon, kSoon);
  rendezvous->exchange("first", "text");
  const int64_t before = store.getNumKeys();
  for (int i = 0; i < kTimes; ++i) rendezvous->exchange("again", std::to_string(i));
  if (place.rank == 0) tests::say(0, store.getNumKeys() < before + kTimes ? "forgotten" : "kept");
  rendezvous->leave();
  return 0;
});

TEST(GlooMesh, DeletesExchangedTextsFromTheStore) {
  const auto run = run_ranks("forgets", 2);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.said.at(0), "forgotten");
}

// Longer than one piece (4 MiB) of the store, and exactly two pieces long.
const Known kLongTexts("long_texts", [](Rendezvous& rendezvous) {
  const auto text_of = [](int rank) {
    return rank == 0 ? std::string(size_t{8} << 20, 'a') : std::string((size_t{9} << 20) + 5, 'b') + "end";
  };
  const auto texts = rendezvous.exchange("long", text_of(rendezvous.rank()));
  return texts == std::vector{text_of(0), text_of(1)} ? "whole" : "cut";
});

TEST(GlooMesh, RanksExchangeTextsOfAnyLength) {
  tests::expect_all_say(run_ranks("long_texts", 2), 2, "whole");
}

const Known kEarlyRank("early", [](Rendezvous& rendezvous) {
  auto pair = rendezvous.group("world", everyone(rendezvous));
  auto value = at::ones({3});
  pair->all_reduce(value)->wait();
  // Ranks exit one after another, rank 0 first. None of them is reported as lost.
  std::this_thread::sleep_for(std::chrono::milliseconds(700 * rendezvous.rank()));
  return std::string("done");
});

TEST(GlooMesh, RanksThatLeaveAtDifferentTimesAreNotTakenForDead) {
  const auto run = run_ranks("early", 3, {.shared_memory = 0});
  EXPECT_EQ(run.status, 0) << run.err;
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(run.said.at(rank), "done");
}

const Known kLate("late", [](Rendezvous& rendezvous) {
  auto group = rendezvous.group("dp_shard", everyone(rendezvous));
  if (rendezvous.rank() == 1) {
    for (;;) ::pause();
  }
  auto value = at::ones({3});
  group->all_reduce(value)->wait();
  return std::string("done");
});

TEST(GlooMesh, NamesTheLateRankWhenACollectiveTimesOut) {
  const auto run = run_ranks("late", 3, {.timeout = std::chrono::seconds(1), .shared_memory = 0});
  EXPECT_EQ(run.status, 1);
  EXPECT_FALSE(run.left_behind);
  std::string together;
  for (const int rank : {0, 2}) {
    EXPECT_THAT(run.said.at(rank), HasSubstr("all_reduce on dp_shard"));
    EXPECT_THAT(run.said.at(rank), HasSubstr("rank 1"));
    together += run.said.at(rank);
  }
  EXPECT_THAT(
      together,
      ContainsRegex(
          "error.timeout. mesh: all_reduce on dp_shard did not end in [0-9.]+ s; rank 1 did not come"));
  EXPECT_THAT(run.said.at(1), HasSubstr("rank 1 is alive but did not come to all_reduce on dp_shard in "));
}

const Known kLateText("late_text", [](Rendezvous& rendezvous) {
  if (rendezvous.rank() == 1) {
    for (;;) ::pause();
  }
  rendezvous.exchange("settings", "text");
  return std::string("done");
});

TEST(GlooMesh, NamesTheLateRankWhenAnExchangeOfTextsTimesOut) {
  const auto run = run_ranks("late_text", 3, {.timeout = std::chrono::seconds(1), .shared_memory = 0});
  EXPECT_EQ(run.status, 1);
  EXPECT_FALSE(run.left_behind);
  EXPECT_THAT(
      run.said.at(0) + run.said.at(2),
      ContainsRegex("error.timeout. mesh: the exchange of settings did not end in [1-9]([.][0-9]+)? s; "
                    "rank 1 did not come"));
}

const Known kNoCall("crossed", [](Rendezvous& rendezvous) {
  auto group = rendezvous.group("pp", everyone(rendezvous));
  group->receive(at::empty({1}), 1 - rendezvous.rank(), 0)->wait();  // both ranks receive, none sends
  return std::string("done");
});

TEST(GlooMesh, BlamesNoRankWhenEveryRankWaits) {
  const auto run = run_ranks("crossed", 2, {.timeout = std::chrono::seconds(1), .shared_memory = 0});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.said.at(0) + run.said.at(1),
              HasSubstr("error[timeout] mesh: receive on pp did not end in "));
  EXPECT_THAT(run.said.at(0) + run.said.at(1), ::testing::Not(HasSubstr("did not come")));
}

TEST(GlooMesh, NamesTheAddressWhenTheStoreIsUnreachable) {
  RankPlace place;
  place.rank = 1, place.world_size = 2, place.port = 1;
  EXPECT_THAT(
      tests::thrown_by([&] { mesh::join(place, {.timeout = std::chrono::milliseconds(200)}); }),
      ::testing::AllOf(
          HasSubstr(
              "error[timeout] mesh: the ranks did not meet in 0.2 s: waiting for rank 0 of 2 at 127.0.0.1:1"),
          HasSubstr("Connection refused"),
          HasSubstr(
              "Check that every rank runs, and that MASTER_ADDR and MASTER_PORT name rank 0's machine")));
}

}  // namespace
}  // namespace heddle

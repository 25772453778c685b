// Store traffic per rank in worlds of thousands of ranks, and reports about late ranks that are not watched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "lib/transport/gloo/store_rendezvous.h"
#include "lib/transport/liveness/watch.h"
#include "lib/transport/liveness/watch_state.h"
#include "tests/main/with_all.h"

namespace heddle::mesh {
namespace {

HEDDLE_WITH_ALL("HeartbeatTree.*");

using ::testing::HasSubstr;

// Counts store calls. A request and its reply count as one.
class CountingStore : public c10d::HashStore {
 public:
  void set(const std::string& key, const std::vector<uint8_t>& data) override {
    const int now = ++calls;
    c10d::HashStore::set(key, data);
    if (key == marked) at_marks.push_back(now), ++marks;
  }
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override {
    ++calls;
    return c10d::HashStore::compareSet(key, expected, desired);
  }
  std::vector<uint8_t> get(const std::string& key) override {
    ++calls;
    return c10d::HashStore::get(key);
  }
  int64_t add(const std::string& key, int64_t value) override {
    ++calls;
    return c10d::HashStore::add(key, value);
  }
  bool check(const std::vector<std::string>& keys) override {
    ++calls;
    return c10d::HashStore::check(keys);
  }
  bool deleteKey(const std::string& key) override {
    ++calls;
    return c10d::HashStore::deleteKey(key);
  }
  void append(const std::string& key, const std::vector<uint8_t>& data) override {
    ++calls;
    c10d::HashStore::append(key, data);
  }
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override {
    ++calls;
    return c10d::HashStore::multiGet(keys);
  }
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<uint8_t>>& values) override {
    ++calls;
    c10d::HashStore::multiSet(keys, values);
  }

  std::string marked;
  std::vector<int> at_marks;  // calls at each write of the key `marked`
  std::atomic<int> calls = 0, marks = 0;
};

template <class Question>
bool comes_true(const Question& question) {
  const auto end = Clock::now() + std::chrono::minutes(2);
  while (!question() && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return question();
}

std::vector<uint8_t> bytes_of_line(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string key_of(int rank) {
  return "beat/" + std::to_string(rank);
}

// Writes heartbeats of waiting ranks on another machine.
void write_beats(c10d::HashStore& store, int world) {
  for (int rank = 0; rank < world; ++rank)
    store.c10d::HashStore::set(key_of(rank), bytes_of_line(Beat{1, 'w', {1, 1, "elsewhere"}, {}}.text()));
}

WatchOptions options_of(int rank, int world) {
  return {.rank = rank,
          .world_size = world,
          .process = this_process(),
          .timeout = std::chrono::hours(1),
          .on_lost = {}};
}

TEST(HeartbeatTree, HearsEveryRankOnce) {
  for (const int world : {1, 2, 7, 8, 9, 64, 65, 100, 512, 4096, 5000}) {
    std::vector<int> heard(world);
    for (int rank = 0; rank < world; ++rank)
      for (const int child : heard_by(rank, world)) ++heard[child];
    EXPECT_EQ(heard[0], 0);
    for (int rank = 1; rank < world; ++rank) EXPECT_EQ(heard[rank], 1) << rank << " of " << world;
  }
  EXPECT_EQ(heard_by(0, 4096).size(), 28u);
}

TEST(HeartbeatTree, LinesAreReadAsTheyWereWritten) {
  const Beat beat{7, 'w', {42, 1234567890123u, "boot/pid:[1]"}, {{4000, 'T'}, {5, 'c'}}};
  const Beat again = Beat::read(beat.text());
  EXPECT_EQ(again.text(), beat.text());
  ASSERT_EQ(again.late.size(), 2u);
  EXPECT_EQ(again.late[0].rank, 4000);
  EXPECT_EQ(again.late[0].how, 'T');
  EXPECT_EQ(again.process.table, "boot/pid:[1]");
  EXPECT_EQ(Beat::read(Beat{1, 'c', {}, {}}.text()).process.table, "");
}

// At 4,096 ranks, heartbeats are written every 2 s, which gives 60 calls per minute.
TEST(HeartbeatTree, CostsARankTwoCallsForEachHeartbeat) {
  constexpr int kWorld = 4096;
  std::vector<c10::intrusive_ptr<CountingStore>> stores;
  std::vector<std::unique_ptr<Watch>> watches;
  for (const int rank : {0, 64, 4095}) {
    stores.push_back(c10::make_intrusive<CountingStore>());
    write_beats(*stores.back(), kWorld);
    stores.back()->marked = key_of(rank);
    stores.back()->at_marks.reserve(100);
    watches.push_back(std::make_unique<Watch>(stores.back(), options_of(rank, kWorld)));
  }
  const auto begin = Clock::now();
  for (const auto& store : stores) {
    ASSERT_TRUE(comes_true([&] { return store->marks >= 5; }));
    EXPECT_EQ(store->at_marks[4] - store->at_marks[2], 4);
  }
  EXPECT_GT(Clock::now() - begin, 2 * kBeat * 4);
}

// The ranks of the other host stop after their first heartbeat.
TEST(HeartbeatTree, CostsARankTwoCallsForEachHeartbeatOnSeveralHosts) {
  constexpr int kWorld = 16;
  const auto store = c10::make_intrusive<CountingStore>();
  write_beats(*store, kWorld);
  std::string others;
  for (int rank = 0; rank < kWorld - 1; ++rank) others += std::to_string(rank) + " ";
  store->c10d::HashStore::append("host/elsewhere", bytes_of_line(others));
  store->marked = key_of(kWorld - 1);
  store->at_marks.reserve(100);
  WatchOptions options = options_of(kWorld - 1, kWorld);
  options.address = "127.0.0.1";
  Watch watch(store, options);
  watch.know_server();
  ASSERT_TRUE(comes_true([&] { return store->marks >= 12; }));
  EXPECT_EQ(store->at_marks[11] - store->at_marks[9], 4);
}

// After a timeout a rank queries only a few other ranks, even in a group of all ranks. The heartbeat of rank
// 0 names the late rank.
TEST(HeartbeatTree, TellsOfALateRankAfterATimeoutWithFewCalls) {
  constexpr int kWorld = 1000;
  const auto store = c10::make_intrusive<CountingStore>();
  write_beats(*store, kWorld);
  store->c10d::HashStore::set(key_of(0),
                              bytes_of_line(Beat{1, 'w', {1, 1, "elsewhere"}, {{700, 'T'}}}.text()));
  Watch watch(store, options_of(3, kWorld));
  ASSERT_TRUE(comes_true([&] { return store->calls > 6; }));
  const int before = store->calls;
  std::vector<int> all(kWorld);
  for (int rank = 0; rank < kWorld; ++rank) all[rank] = rank;
  const Error error =
      watch.verdict({"all_reduce on dp", all, std::chrono::seconds(1), Broken::How::timed_out, ""});
  EXPECT_THAT(error.message(), HasSubstr("rank 700 did not come (stopped by a signal, state T)"));
  EXPECT_LE(store->calls - before, 64);
}

TEST(HeartbeatTree, CarriesALateRankToRankZero) {
  constexpr int kWorld = 80, kLate = 77;
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::unique_ptr<Watch>> watches;
  for (int rank = 0; rank < kWorld; ++rank) {
    watches.push_back(std::make_unique<Watch>(store, options_of(rank, kWorld)));
    watches.back()->set_waiting(rank != kLate);
  }
  const auto told = [&] {
    if (!store->check({key_of(0)})) return std::vector<LateRank>{};
    const auto text = store->get(key_of(0));
    return Beat::read({text.begin(), text.end()}).late;
  };
  EXPECT_TRUE(comes_true([&] { return told().size() == 1 && told()[0].rank == kLate; }));
  const Error error =
      watches[3]->verdict({"all_reduce on dp", {}, std::chrono::seconds(1), Broken::How::timed_out, ""});
  EXPECT_THAT(error.message(), HasSubstr("rank 77 did not come"));
}

// Bounds the store calls of rank 0 for a rendezvous with short texts and one answer.
TEST(StoreRendezvousOfManyRanks, DeletesTextsTogether) {
  constexpr int kWorld = 4096;
  const auto store = c10::make_intrusive<CountingStore>();
  std::vector<StoreRendezvous> ranks;
  for (int rank = 0; rank < kWorld; ++rank) ranks.emplace_back(store, "key/", rank, kWorld);
  const auto text_of = [](int rank) { return "text of " + std::to_string(rank); };
  for (int rank = kWorld - 1; rank > 0; --rank) ranks[rank].give(text_of(rank));
  int before = store->calls;
  EXPECT_TRUE(ranks[0].is_complete());
  const std::vector<std::string> texts = ranks[0].texts(text_of(0));
  for (int rank = 0; rank < kWorld; ++rank) EXPECT_EQ(texts[rank], text_of(rank));
  ranks[0].answer(std::vector<std::string>{"answer"});
  int mine = store->calls - before;
  for (int rank = 1; rank < kWorld; ++rank) EXPECT_EQ(ranks[rank].take(), "answer");
  before = store->calls;
  EXPECT_TRUE(ranks[0].is_read());
  ranks[0].clear();
  mine += store->calls - before;
  EXPECT_LE(mine, 64);
  EXPECT_EQ(store->getNumKeys(), 0);
}

}  // namespace
}  // namespace heddle::mesh

// Watchdogs of ranks on two hosts in one process: lost hosts, and reports about the own host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#include "lib/transport/liveness/watch.h"
#include "lib/transport/liveness/watch_state.h"
#include "transport/child_process.h"

namespace heddle::mesh {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using tests::Child;
using tests::eventually;
using tests::process_of;

constexpr std::chrono::milliseconds kHeartbeat{3000};

// A store connection that can be cut, after which calls block.
class CutStore : public c10d::PrefixStore {
 public:
  explicit CutStore(c10::intrusive_ptr<c10d::Store> store) : PrefixStore("run", std::move(store)) {}
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    while (is_cut) std::this_thread::sleep_for(kPollInterval);
    PrefixStore::set(key, value);
  }
  std::atomic<bool> is_cut = false;
};

Process on_host(const std::string& table, Process process = this_process()) {
  process.table = table;
  return process;
}

// Ranks on the hosts alpha and beta. A rank has a watchdog, or the test writes its heartbeat.
class LostHost : public ::testing::Test {
 protected:
  ~LostHost() override {
    for (auto& [rank, store] : stores_) store->is_cut = false;
  }
  // hosts: the host of each rank, "alpha" or "beta".
  void begin(std::vector<std::string> hosts) { hosts_ = std::move(hosts); }

  CutStore& watch(int rank, std::function<void(WatchOptions&)> change = {}) {
    stores_[rank] = c10::make_intrusive<CutStore>(shared_);
    WatchOptions options{.rank = rank,
                         .world_size = static_cast<int>(hosts_.size()),
                         .process = on_host(hosts_[rank]),
                         .timeout = std::chrono::hours(1),
                         .on_lost = {},
                         .heartbeat = kHeartbeat,
                         .host_name = [hosts = hosts_](int other) { return hosts[other]; },
                         .address = "127.0.0.1"};
    if (change) change(options);
    watches_[rank] = std::make_unique<Watch>(stores_[rank], options);
    return *stores_[rank];
  }
  void play(int rank, char state, const Process& process, const std::string& contact = "") {
    const std::string text = Beat{++count_, state, on_host(hosts_[rank], process), {}, contact}.text();
    c10d::PrefixStore store("run", shared_);
    store.set(beat_key(rank), std::vector<uint8_t>(text.begin(), text.end()));
    const std::string line = std::to_string(rank) + " ";
    if (played_.insert(rank).second)
      store.append("host/" + hosts_[rank], std::vector<uint8_t>(line.begin(), line.end()));
  }
  void meet() {
    for (auto& [rank, one_watch] : watches_) one_watch->know_server();
  }
  std::string verdict(int rank, Broken::How how = Broken::How::timed_out) {
    return watches_[rank]
        ->verdict({"all_reduce on dp", {}, std::chrono::seconds(9), how, "closed"})
        .message();
  }
  bool lost(int rank) const { return watches_.at(rank)->lost(); }
  // Waits longer than the heartbeat interval after which a silent host counts as lost.
  void outlast_the_heartbeat(int rank) const {
    const auto begin = watches_.at(rank)->running_time();
    EXPECT_TRUE(eventually([&] {
      return lost(rank) || watches_.at(rank)->running_time() - begin > kHeartbeat + std::chrono::seconds(3);
    }));
  }

  std::vector<std::string> hosts_;
  c10::intrusive_ptr<c10d::HashStore> shared_ = c10::make_intrusive<c10d::HashStore>();
  std::map<int, c10::intrusive_ptr<CutStore>> stores_;
  std::map<int, std::unique_ptr<Watch>> watches_;
  std::set<int> played_;
  int64_t count_ = 0;
};

TEST_F(LostHost, IsNamedWithItsRanksByTheRanksBesideTheStore) {
  begin({"alpha", "alpha", "beta", "beta"});
  play(2, 'w', this_process());
  play(3, 'c', this_process());
  watch(0), watch(1);
  meet();
  EXPECT_TRUE(eventually([&] { return lost(0) && lost(1); }));
  for (const int rank : {0, 1})
    EXPECT_THAT(verdict(rank),
                MatchesRegex("ranks 2, 3 on beta were lost: their host was not heard for 3[.0-9]* "
                             "s; this rank waited in all_reduce on dp"));
}

TEST_F(LostHost, IsThatOfRankZeroForRanksWhoseStoreIsSilent) {
  begin({"alpha", "alpha", "beta", "beta"});
  const ProbeSocket silent("127.0.0.1");
  play(0, 'w', this_process(), silent.contact());
  play(1, 'w', this_process(), silent.contact());
  CutStore& second = watch(2);
  CutStore& third = watch(3);
  meet();
  second.is_cut = third.is_cut = true;
  EXPECT_TRUE(eventually([&] { return lost(2) && lost(3); }));
  EXPECT_THAT(verdict(2),
              MatchesRegex("ranks 0, 1 on alpha were lost: their host was not heard for 3[.0-9]* s; "
                           "this rank waited in all_reduce on dp"));
}

TEST_F(LostHost, IsNotThatOfARankWhichAnotherRankSeesStopped) {
  begin({"alpha", "beta", "beta"});
  const Child stopped([] { ::raise(SIGSTOP); });
  stopped.await(WUNTRACED);
  play(1, 'w', process_of(stopped));
  watch(0), watch(2);
  meet();
  watches_[2]->set_waiting(true);
  outlast_the_heartbeat(0);
  EXPECT_FALSE(lost(0));
  EXPECT_THAT(verdict(0), HasSubstr("; rank 1 on beta did not come (stopped by a signal, state T)"));
}

// Another connection broke while a rank was stopped.
TEST_F(LostHost, IsNotThatOfAStoppedRankAlthoughAConnectionBroke) {
  begin({"alpha", "beta", "beta"});
  const Child stopped([] { ::raise(SIGSTOP); });
  stopped.await(WUNTRACED);
  play(1, 'w', process_of(stopped));
  watch(0), watch(2);
  meet();
  EXPECT_THAT(verdict(0, Broken::How::failed), HasSubstr("broke, and every rank is alive"));
}

TEST_F(LostHost, IsNotThatOfAStoppedRankZeroWhileAnotherRankAnswers) {
  begin({"alpha", "alpha", "beta"});
  const Child server([] { ::raise(SIGSTOP); });
  server.await(WUNTRACED);
  play(0, 'w', process_of(server));
  watch(1);
  CutStore& store = watch(2);
  meet();
  store.is_cut = true;
  outlast_the_heartbeat(2);
  EXPECT_FALSE(lost(2));
  EXPECT_THAT(verdict(2), HasSubstr("; rank 0 on alpha did not come (stopped by a signal, state T)"));
}

// After the store was silent, ranks of a third host have not yet written a new heartbeat.
TEST_F(LostHost, IsNotAHostThatTheSilentStoreHid) {
  begin({"alpha", "beta", "gamma"});
  const ProbeSocket answering("127.0.0.1");
  play(0, 'w', this_process(), answering.contact());
  play(2, 'w', this_process());
  CutStore& store = watch(1);
  meet();
  const auto own_beat = [&] {
    const auto text = c10d::PrefixStore("run", shared_).get(beat_key(1));
    return Beat::read({text.begin(), text.end()}).count;
  };
  ASSERT_TRUE(eventually([&] { return own_beat() > 2; }));
  store.is_cut = true;
  const auto begin = watches_[1]->running_time();
  while (watches_[1]->running_time() - begin < kHeartbeat + std::chrono::seconds(2)) {
    answering.receive([](int) { return Beat{}.text(); }, [](const std::string&) {});
    std::this_thread::sleep_for(kPollInterval);
  }
  const int64_t before = own_beat();
  store.is_cut = false;
  ASSERT_TRUE(eventually([&] { return own_beat() > before + 3; }));
  EXPECT_FALSE(lost(1));
}

TEST_F(LostHost, IsNotFoundBySilenceOfOneOfItsRanks) {
  begin({"alpha", "beta", "beta"});
  play(1, 'w', this_process());
  watch(0), watch(2);
  meet();
  outlast_the_heartbeat(0);
  EXPECT_FALSE(lost(0));
}

// The store connection of rank 1 was closed.
class GoneRank : public LostHost {
 protected:
  void let_it_look() {
    ASSERT_TRUE(eventually([&] { return c10d::PrefixStore("run", shared_).check({beat_key(0)}); }));
    const auto own = [&] {
      const auto text = c10d::PrefixStore("run", shared_).get(beat_key(0));
      return Beat::read({text.begin(), text.end()}).count;
    };
    const int64_t before = own();
    ASSERT_TRUE(eventually([&] { return own() > before + 2; }));
  }
};

TEST_F(GoneRank, IsLostAtOnce) {
  begin({"alpha", "beta"});
  play(1, 'c', this_process());
  watch(0, [](WatchOptions& options) { options.heartbeat = std::chrono::hours(1); });
  meet();
  const auto begin = Clock::now();
  watches_[0]->gone_function()(1);
  EXPECT_TRUE(eventually([&] { return lost(0); }));
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
  EXPECT_THAT(verdict(0, Broken::How::failed), HasSubstr("rank 1 on beta died (its process is gone)"));
}

TEST_F(GoneRank, IsLostBeforeItsFirstHeartbeat) {
  begin({"alpha", "beta"});
  watch(0);
  watches_[0]->gone_function()(1);
  EXPECT_TRUE(eventually([&] { return lost(0); }));
}

TEST_F(GoneRank, IsNotLostIfItHasLeft) {
  begin({"alpha", "beta"});
  play(1, 'l', this_process());
  watch(0);
  meet();
  watches_[0]->gone_function()(1);
  let_it_look();
  EXPECT_FALSE(lost(0));
}

TEST_F(GoneRank, IsNamedWithTheReasonThatItPublished) {
  begin({"alpha", "beta"});
  watch(0), watch(1);
  meet();
  watches_[1]->abandon("no space left on device");
  watches_[0]->gone_function()(1);
  EXPECT_TRUE(eventually([&] { return lost(0); }));
  EXPECT_THAT(verdict(0, Broken::How::failed), HasSubstr("rank 1 on beta failed: no space left on device"));
}

// Rank 1 was stopped by a signal before its first step.
class StoppedRank : public LostHost {};

TEST_F(StoppedRank, IsToldToTheOtherRanksWithTheSignal) {
  begin({"alpha", "alpha", "beta"});
  std::atomic<int> calls = 0, told_rank = -1, told_signal = 0;
  const auto hear = [&](WatchOptions& options) {
    options.on_stopped = [&](int rank, int signal) { told_rank = rank, told_signal = signal, ++calls; };
  };
  watch(0, hear), watch(1, hear), watch(2, hear);
  meet();
  const auto begin = Clock::now();
  watches_[1]->stop_function()(SIGTERM);
  EXPECT_LT(Clock::now() - begin, std::chrono::milliseconds(1500));
  EXPECT_TRUE(eventually([&] { return calls == 2 && lost(0) && lost(2); }));
  EXPECT_EQ(told_rank, 1);
  EXPECT_EQ(told_signal, SIGTERM);
  EXPECT_FALSE(lost(1));
}

TEST_F(StoppedRank, IsAnOrdinaryLossWithoutACallback) {
  begin({"alpha", "beta"});
  watch(0), watch(1);
  meet();
  watches_[1]->stop_function()(SIGTERM);
  EXPECT_TRUE(eventually([&] { return lost(0); }));
  EXPECT_EQ(verdict(0, Broken::How::failed),
            "rank 1 on beta was stopped by SIGTERM before the first step; this rank waited for it in "
            "all_reduce on dp");
}

TEST_F(StoppedRank, DoesNotWaitForASilentStore) {
  begin({"alpha", "beta"});
  play(0, 'w', this_process());
  watch(1).is_cut = true;
  const auto begin = Clock::now();
  watches_[1]->stop_function()(SIGINT);
  EXPECT_LT(Clock::now() - begin, std::chrono::milliseconds(1500));
}

TEST(LossRecords, AreReadAsTheyWereWritten) {
  for (const Loss& loss :
       {Loss{3, Loss::Kind::lives, "failed: two\nlines"}, Loss{2, Loss::Kind::dead, kDied},
        Loss{4, Loss::Kind::host, "were lost: x", {4, 5, 7}}, Loss{1, Loss::Kind::stopped, "15"}}) {
    const Loss again = Loss::read(loss.record());
    EXPECT_EQ(again.record(), loss.record());
    EXPECT_EQ(again.kind, loss.kind);
    EXPECT_EQ(again.how, loss.how);
    EXPECT_EQ(again.members, loss.members);
  }
}

}  // namespace
}  // namespace heddle::mesh

// A rank's watchdog with heartbeats written by the test: which rank is lost, and when.
#include "lib/transport/liveness/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <atomic>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "lib/transport/liveness/watch_state.h"
#include "transport/child_process.h"

namespace heddle::mesh {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using tests::Child;
using tests::eventually;
using tests::process_of;

TEST(ProcessStates, AreThoseOfTheProcessTable) {
  const std::string table = this_process().table;
  ASSERT_NE(table, "");
  EXPECT_EQ(state_of(this_process(), table), ProcessState::alive);
  const Child running([] {});
  EXPECT_EQ(state_of(process_of(running), table), ProcessState::alive);
  const Child stopped([] { ::raise(SIGSTOP); });
  stopped.await(WUNTRACED);
  EXPECT_EQ(state_of(process_of(stopped), table), ProcessState::stopped);
  const Child traced([] {
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    ::raise(SIGTRAP);
  });
  traced.await(0);
  EXPECT_EQ(state_of(process_of(traced), table), ProcessState::traced);
  const Child zombie([] { ::_exit(0); });
  zombie.await_end();
  EXPECT_EQ(state_of(process_of(zombie), table), ProcessState::ended);
}

TEST(ProcessStates, ReportTheEndWhenAnIdIsReused) {
  Process earlier = this_process();
  --earlier.started;
  EXPECT_EQ(state_of(earlier, earlier.table), ProcessState::ended);
}

TEST(ProcessStates, AreNotSeenInAnotherTable) {
  EXPECT_EQ(state_of(this_process(), "another boot/pid:[1]"), ProcessState::unseen);
  Process unknown = this_process();
  unknown.table = "";
  EXPECT_EQ(state_of(unknown, ""), ProcessState::unseen);
}

// Returns the identity of a process that has exited and was reaped.
Process gone() {
  const Child child([] {});
  return process_of(child);
}

Process of_another_namespace(Process process) {
  process.table += "0";
  return process;
}

// The watchdog of rank 0. The test plays rank 1.
class Watched : public ::testing::Test {
 protected:
  void begin(std::chrono::milliseconds timeout, const Process& other) {
    c10d::TCPStoreOptions options;
    options.isServer = true;
    options.port = 0;  // any free port
    options.waitWorkers = false;
    store_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    beat('w', other);
    watch_ = std::make_unique<Watch>(
        store_->clone(),
        WatchOptions{.world_size = 2, .process = this_process(), .timeout = timeout, .on_lost = {}});
  }
  void beat(char state, const Process& process) {
    store_->set("beat/1", Beat{++count_, state, process, {}}.text());
  }
  // Waits until the watchdog has checked rank 1 several times.
  void let_it_look() {
    ASSERT_TRUE(eventually([&] { return store_->check({"beat/0"}); }));
    const auto own = [&] {
      const auto text = store_->get("beat/0");
      return Beat::read({text.begin(), text.end()}).count;
    };
    const int64_t before = own();
    ASSERT_TRUE(eventually([&] { return own() > before + 3; }));
  }
  std::string found() {
    return watch_->verdict({"all_reduce on dp", {0, 1}, {}, Broken::How::failed, "closed"}).message();
  }

  c10::intrusive_ptr<c10d::Store> store_;
  std::unique_ptr<Watch> watch_;
  int64_t count_ = 0;
};

TEST_F(Watched, LosesARankWhoseProcessIsGone) {
  begin(std::chrono::minutes(1), gone());
  EXPECT_TRUE(eventually([&] { return watch_->lost(); }));
  EXPECT_EQ(found(), "rank 1 died (its process is gone); this rank waited for it in all_reduce on dp");
}

TEST_F(Watched, DoesNotLookUpARankOfAnotherNamespace) {
  begin(std::chrono::minutes(1), of_another_namespace(gone()));
  let_it_look();
  EXPECT_FALSE(watch_->lost());
}

TEST_F(Watched, LosesAnUnseenRankAfterTheTimeout) {
  begin(std::chrono::milliseconds(2500), of_another_namespace(gone()));
  EXPECT_TRUE(eventually([&] { return watch_->lost(); }));
  EXPECT_THAT(found(), MatchesRegex("rank 1 was lost: no heartbeat for [0-9.]+ s, and its process cannot be "
                                    "seen from here; this rank waited for it in all_reduce on dp"));
}

TEST_F(Watched, LosesAnUnseenRankSoonWhenItsConnectionBroke) {
  begin(std::chrono::hours(1), of_another_namespace(gone()));
  EXPECT_THAT(watch_->verdict({"all_reduce on dp", {0, 1}, {}, Broken::How::failed, "closed"}).message(),
              HasSubstr("rank 1 was lost: no heartbeat for 2"));
}

TEST_F(Watched, NamesTheStateOfALivingRankAfterTheTimeout) {
  const Child stopped([] { ::raise(SIGSTOP); });
  stopped.await(WUNTRACED);
  begin(std::chrono::seconds(1), process_of(stopped));
  let_it_look();
  EXPECT_FALSE(watch_->lost());
  const Error error =
      watch_->verdict({"all_reduce on dp", {0, 1}, std::chrono::seconds(1), Broken::How::timed_out, ""});
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_EQ(error.message(),
            "all_reduce on dp did not end in 1 s; rank 1 did not come (stopped by a signal, state T)");
  const auto told = [&] {
    const auto text = store_->get("lost");
    return std::string(text.begin(), text.end());
  };
  ASSERT_TRUE(eventually([&] { return told() != ""; }));
  EXPECT_EQ(told(),
            "1 l is alive but did not come to all_reduce on dp in 1 s (stopped by a signal, state T)");
}

// The store of a stopped rank 0, whose calls block.
class SilentStore : public c10d::HashStore {
 public:
  void set(const std::string& key, const std::vector<uint8_t>& data) override {
    while (is_silent) std::this_thread::sleep_for(kPollInterval);
    c10d::HashStore::set(key, data);
  }
  std::atomic<bool> is_silent = false;
};

TEST(SilentRankZero, IsNamedAsStoppedByTheProcessTable) {
  const Child server([] {});
  const auto store = c10::make_intrusive<SilentStore>();
  const std::string beat = Beat{1, 'w', process_of(server), {}}.text();
  store->set("beat/0", {beat.begin(), beat.end()});
  Watch watch(store, WatchOptions{.rank = 1,
                                  .world_size = 2,
                                  .process = this_process(),
                                  .timeout = std::chrono::milliseconds(120),
                                  .on_lost = {}});
  const auto beats = [&] {
    const auto text = store->get("beat/1");
    return Beat::read({text.begin(), text.end()}).count;
  };
  ASSERT_TRUE(eventually([&] { return store->check({"beat/1"}) && beats() > 2; }));
  store->is_silent = true;
  ::kill(server.id(), SIGSTOP);
  server.await(WUNTRACED);
  const Error error =
      watch.verdict({"all_reduce on dp", {0, 1}, std::chrono::milliseconds(120), Broken::How::timed_out, ""});
  EXPECT_THAT(error.message(), HasSubstr("(stopped by a signal, state T)"));
  store->is_silent = false;
}

// The store of rank 0 falls silent before the watchdog has read any heartbeat.
TEST(SilentRankZero, IsNamedAsStoppedByARankThatHasOnlyMetIt) {
  const Child server([] {});
  const auto store = c10::make_intrusive<SilentStore>();
  const std::string beat = Beat{1, 'w', process_of(server), {}}.text();
  store->set("beat/0", {beat.begin(), beat.end()});
  store->is_silent = true;
  Watch watch(store, WatchOptions{.rank = 2,
                                  .world_size = 3,
                                  .process = this_process(),
                                  .timeout = std::chrono::milliseconds(120),
                                  .on_lost = {}});
  watch.know_server();
  ::kill(server.id(), SIGSTOP);
  server.await(WUNTRACED);
  const Error error = watch.verdict(
      {"all_reduce on dp", {0, 1, 2}, std::chrono::milliseconds(120), Broken::How::timed_out, ""});
  EXPECT_THAT(error.message(), HasSubstr("rank 0 "));
  EXPECT_THAT(error.message(), HasSubstr("(stopped by a signal, state T)"));
  store->is_silent = false;
}

TEST_F(Watched, ReleasesATransferAfterItsTimeout) {
  begin(std::chrono::minutes(1), this_process());
  std::atomic<bool> released = false;
  watch_->interrupt(
      &released, [&] { released = true; }, watch_->running_time());
  EXPECT_TRUE(eventually([&] { return released.load(); }));
  watch_->forget(&released);
}

}  // namespace
}  // namespace heddle::mesh

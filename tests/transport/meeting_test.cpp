// Rendezvous of ranks at the store of rank 0, as threads of one process.
#include "lib/transport/meeting/meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "core/mesh/packed.h"
#include "heddle/base/error.h"
#include "lib/transport/launch/process.h"
#include "tests/main/with_all.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

HEDDLE_WITH_ALL("Meeting.Refuses*:Meeting.NamesARank*");

using mesh::Greeting;
using mesh::Meeting;
using mesh::StoreClient;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr seconds kPlenty{20};

// Returns the places of ranks that meet at a free local port.
std::vector<RankPlace> places_of(int ranks) {
  std::string fault;
  mesh::Socket socket = mesh::listen_on(0, fault);
  std::vector<RankPlace> out(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    out[rank].rank = out[rank].local_rank = rank;
    out[rank].world_size = out[rank].local_world_size = ranks;
    out[rank].port = socket.port();
    out[rank].launcher = "torchrun";
  }
  out[0].listen_fd = ::dup(socket.descriptor());
  return out;
}

// Returns the error of each rank's join(), or "met" where it returns.
std::vector<std::string> outcomes(std::vector<std::unique_ptr<Meeting>>& meetings,
                                  milliseconds timeout = kPlenty, const Log& log = {}) {
  std::vector<std::string> out(meetings.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < meetings.size(); ++i)
    threads.emplace_back([&, i] {
      if (!meetings[i]) return;
      try {
        meetings[i]->join(timeout, log);
        out[i] = "met";
      } catch (const Error& error) {
        out[i] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return out;
}

std::vector<std::unique_ptr<Meeting>> begun(const std::vector<RankPlace>& places) {
  std::vector<std::unique_ptr<Meeting>> out;
  for (const RankPlace& place : places) out.push_back(std::make_unique<Meeting>(place));
  return out;
}

// Returns a store client for direct queries of the test.
c10::intrusive_ptr<StoreClient> visit(const RankPlace& place) {
  std::string fault;
  Greeting guest;
  guest.role = Greeting::Role::guest;
  return c10::make_intrusive<StoreClient>(mesh::resolve(place.host, place.port, fault), guest, kPlenty,
                                          kPlenty);
}

TEST(Meeting, ReturnsOnEveryRankWhenAllHaveCome) {
  auto meetings = begun(places_of(3));
  for (const std::string& outcome : outcomes(meetings)) EXPECT_EQ(outcome, "met");
}

TEST(Meeting, EndsWithTheErrorOfARankThatRefuses) {
  const auto places = places_of(3);
  auto meetings = begun(places);
  meetings[2]->refuse(Error(ErrorCode::config, "run.yaml:3 model", "there is no such model", "name another"));
  meetings[2].reset();
  const auto heard = outcomes(meetings);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string& outcome = heard[rank];
    EXPECT_THAT(outcome, HasSubstr("error[config] run.yaml:3 model: rank 2 on "));
    EXPECT_THAT(outcome, HasSubstr(": there is no such model\n  hint: name another"));
  }
}

TEST(Meeting, TellsARankThatComesAfterTheRefusalOfRankZero) {
  const auto places = places_of(2);
  std::vector<std::unique_ptr<Meeting>> meetings(2);
  meetings[0] = std::make_unique<Meeting>(places[0]);
  std::thread refusing([&] { meetings[0]->refuse(Error(ErrorCode::input, "file", "is damaged")); });
  std::this_thread::sleep_for(milliseconds(300));
  Meeting late(places[1]);
  EXPECT_THAT(tests::thrown_by([&] { late.join(kPlenty, {}); }), HasSubstr("error[input] file: rank 0 on "));
  refusing.join();
}

// Returns the greeting of a process on another machine.
Greeting foreign(int rank, int world_size) {
  Greeting out;
  out.rank = rank, out.world_size = world_size, out.process = 1, out.host = "elsewhere", out.table = "other";
  return out;
}

TEST(Meeting, RefusesARankThatExistsTwice) {
  auto places = places_of(3);
  places.pop_back();
  auto meetings = begun(places);
  std::this_thread::sleep_for(milliseconds(300));
  std::string fault;
  StoreClient second(mesh::resolve(places[0].host, places[0].port, fault), foreign(1, 3), kPlenty, kPlenty);
  for (const std::string& outcome : outcomes(meetings))
    EXPECT_THAT(outcome, HasSubstr("error[mesh] mesh: rank 1 exists twice: as process "));
  EXPECT_EQ(second.ask({"join", "100"}).at(0), "refused");
}

TEST(Meeting, RefusesAnotherWorldSize) {
  auto places = places_of(3);
  places[1].world_size = 2;
  auto meetings = begun(places);
  for (const std::string& outcome : outcomes(meetings)) {
    EXPECT_THAT(outcome, HasSubstr("the world of rank 1 on "));
    EXPECT_THAT(outcome, HasSubstr(" has 2 ranks, and the world of rank 0 on "));
  }
}

TEST(Meeting, RefusesARankOutsideTheWorld) {
  auto places = places_of(2);
  places[1].rank = 7;
  auto meetings = begun(places);
  for (const std::string& outcome : outcomes(meetings)) {
    EXPECT_THAT(outcome, HasSubstr("error[mesh] mesh: rank 7 on "));
    EXPECT_THAT(outcome, HasSubstr(" is not one of the 2 ranks"));
  }
}

TEST(Meeting, RefusesOnlyAProcessThatComesWhenAllHaveJoined) {
  const auto places = places_of(2);
  auto meetings = begun(places);
  for (const std::string& outcome : outcomes(meetings)) ASSERT_EQ(outcome, "met");
  std::string fault;
  StoreClient other(mesh::resolve(places[0].host, places[0].port, fault), foreign(1, 2), kPlenty, kPlenty);
  const auto answer = other.ask({"join", "100"});
  ASSERT_EQ(answer.at(0), "refused");
  EXPECT_THAT(answer.at(1), HasSubstr("came to a run that has already begun, whose rank 0 is process "));
}

// A rank may abandon its greeting to a slow rank 0 and connect again.
TEST(Meeting, ForgetsAConnectionThatNeverReadItsAnswer) {
  const auto places = places_of(2);
  std::vector<std::unique_ptr<Meeting>> meetings(2);
  meetings[0] = std::make_unique<Meeting>(places[0]);
  std::string fault;
  Greeting given_up;
  given_up.rank = 1, given_up.world_size = 2, given_up.process = ::getpid();
  given_up.table = mesh::this_process().table;
  for (int i = 0; i < 2; ++i) {
    const mesh::Socket socket =
        mesh::connect_to(mesh::resolve(places[0].host, places[0].port, fault), kPlenty, fault);
    mesh::send_message(socket, mesh::pack(std::vector<std::string>{mesh::kGreeting, given_up.packed()}),
                       kPlenty);
  }
  meetings[1] = std::make_unique<Meeting>(places[1]);
  for (const std::string& outcome : outcomes(meetings)) EXPECT_EQ(outcome, "met");
}

TEST(Meeting, NamesARankThatEndsBeforeAllHaveCome) {
  auto meetings = begun(places_of(3));
  std::this_thread::sleep_for(milliseconds(500));
  meetings[2].reset();
  const auto heard = outcomes(meetings);
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_THAT(heard[rank], HasSubstr("error[rank_lost] mesh: rank 2 on "));
}

TEST(Meeting, CallsOnStoppedWhereASignalEndsARank) {
  auto meetings = begun(places_of(2));
  meetings[1]->stop(SIGTERM);
  int rank = -1, signal = 0;
  const auto note = [&](int of_rank, int number) { rank = of_rank, signal = number; };
  EXPECT_THAT(tests::thrown_by([&] { meetings[0]->join(kPlenty, {}, note); }), HasSubstr("was stopped by "));
  EXPECT_EQ(rank, 1);
  EXPECT_EQ(signal, SIGTERM);
}

TEST(Meeting, LogsWhomItWaitsForAndNamesThemAtTheTimeout) {
  std::mutex mutex;
  std::vector<std::string> lines;
  const Log log([&](LogLevel, std::string_view, std::string_view text) {
    const std::lock_guard lock(mutex);
    lines.emplace_back(text);
  });
  auto places = places_of(3);
  places.pop_back();
  auto meetings = begun(places);
  for (const std::string& outcome : outcomes(meetings, milliseconds(4000), log))
    EXPECT_THAT(outcome,
                HasSubstr("error[timeout] mesh: the ranks did not meet in 4 s: waiting for rank 2 of 3 at "));
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines[0], HasSubstr("waiting for rank 2 of 3 at 127.0.0.1:"));
  EXPECT_THAT(lines[0], HasSubstr(" (WORLD_SIZE=3), which other machines cannot reach; ranks 0, 1 on "));
}

TEST(Meeting, SurvivesBytesOfOtherPrograms) {
  const auto places = places_of(2);
  auto meetings = begun(places);
  std::string fault;
  std::vector<mesh::Socket> strangers;
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100000, '\xff'), std::string(3, '\0')}) {
    strangers.push_back(
        mesh::connect_to(mesh::resolve(places[0].host, places[0].port, fault), kPlenty, fault));
    mesh::send_message(strangers.back(), bytes, seconds(1));
  }
  for (const std::string& outcome : outcomes(meetings)) EXPECT_EQ(outcome, "met");
}

TEST(Meeting, TellsRankZeroWhichConnectionEnded) {
  const auto places = places_of(2);
  auto meetings = begun(places);
  for (const std::string& outcome : outcomes(meetings)) ASSERT_EQ(outcome, "met");
  std::mutex mutex;
  std::condition_variable changed;
  int gone = -1;
  meetings[0]->follow(
      [&](int rank) {
        const std::lock_guard lock(mutex);
        gone = rank;
        changed.notify_all();
      },
      {});
  meetings[1].reset();
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, kPlenty, [&] { return gone == 1; }));
}

TEST(Meeting, FindsTheStoreOfRankZeroThroughTheAgentOfTorchrun) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.waitWorkers = false;
  options.port = 0;
  const auto agent = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  auto places = places_of(3);
  ::close(std::exchange(places[0].listen_fd, -1));
  for (RankPlace& place : places) {
    place.port = agent->getPort();
    place.store_served = true;
    place.session = "2";
  }
  auto meetings = begun(places);
  for (const std::string& outcome : outcomes(meetings)) EXPECT_EQ(outcome, "met");
}

TEST(StoreClient, DoesWhatStoresOfLibTorchDo) {
  const auto places = places_of(2);
  Meeting serving(places[0]);
  const auto store = visit(places[0]);
  const auto text = [](const std::vector<uint8_t>& bytes) { return std::string(bytes.begin(), bytes.end()); };
  const auto bytes = [](const std::string& of) { return std::vector<uint8_t>(of.begin(), of.end()); };
  c10d::Store& base = *store;
  EXPECT_EQ(base.add("count", 3), 3);
  EXPECT_EQ(base.add("count", -1), 2);
  base.set("key", std::string("value"));
  EXPECT_EQ(text(base.get("key")), "value");
  EXPECT_TRUE(base.check({"key", "count"}));
  EXPECT_FALSE(base.check({"key", "none"}));
  EXPECT_EQ(base.compareSet("key", "other", "new"), "value");
  EXPECT_EQ(base.compareSet("key", "value", "new"), "new");
  EXPECT_EQ(base.compareSet("fresh", "", "first"), "first");
  EXPECT_EQ(base.compareSet("absent", "expected", "first"), "expected");
  base.append("list", bytes("a"));
  base.append("list", bytes("b"));
  base.multiSet({"x", "y"}, {bytes("1"), bytes("2")});
  EXPECT_EQ(text(base.multiGet({"list", "y"}).at(0)), "ab");
  EXPECT_EQ(base.getNumKeys(), 6);
  EXPECT_TRUE(base.deleteKey("x"));
  EXPECT_FALSE(base.deleteKey("x"));
  EXPECT_THROW(base.wait({"never"}, milliseconds(200)), std::exception);
}

TEST(StoreClient, WaitsForAKeyThatAnotherConnectionSets) {
  const auto places = places_of(2);
  Meeting serving(places[0]);
  const auto store = visit(places[0]);
  std::thread setting([&] {
    std::this_thread::sleep_for(milliseconds(700));  // longer than one slice of a wait
    store->connect_again(Greeting::Role::guest, kPlenty)->set("later", std::vector<uint8_t>{'!'});
  });
  EXPECT_EQ(store->get("later"), std::vector<uint8_t>{'!'});
  setting.join();
}

TEST(StoreClient, EndsARequestUnderWayWhenItIsClosed) {
  const auto places = places_of(2);
  Meeting serving(places[0]);
  const auto store = visit(places[0]);
  std::thread closing([&] {
    std::this_thread::sleep_for(milliseconds(200));
    store->close();
  });
  EXPECT_THROW(store->get("never"), std::exception);
  closing.join();
}

}  // namespace
}  // namespace heddle

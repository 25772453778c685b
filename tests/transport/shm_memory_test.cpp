// Ranks as processes with shared memory: mappings, and the fallback without shared memory.
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "heddle/base/error.h"
#include "heddle/transport/join.h"
#include "tests/main/with_all.h"
#include "transport/children.h"

namespace heddle {
namespace {

HEDDLE_WITH_ALL("Sizes/Shm*");

using ::testing::HasSubstr;
using ::testing::Not;
using tests::everyone;
using tests::expect_all_say;
using tests::Known;
using tests::run_ranks;

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Returns what this process maps of other ranks, and which mapped files still have a name.
std::string memory_of(Rendezvous& rendezvous) {
  auto group = rendezvous.group("world", everyone(rendezvous));
  auto value = at::ones({1});
  group->all_reduce(value)->wait();
  const std::string maps = read_line("/proc/self/maps");
  size_t arenas = 0;
  for (size_t at = maps.find("/memfd:heddle"); at != std::string::npos;
       at = maps.find("/memfd:heddle", at + 1))
    ++arenas;
  size_t named = 0;  // mapped files that other processes could open
  for (size_t at = maps.find("/dev/shm/"); at != std::string::npos; at = maps.find("/dev/shm/", at + 1))
    ++named;
  return std::to_string(arenas) + " arenas, " + std::to_string(named) + " names, sum " +
         std::to_string(value.item<float>());
}

const Known kMemory("memory", memory_of);

TEST(ShmMemory, MapsEveryArenaWithoutNames) {
  expect_all_say(run_ranks("memory", 3), 3, "3 arenas, 0 names, sum 3.000000");
}

TEST(ShmMemory, UsesGlooSilentlyWhenOneRankOptsOut) {
  ::setenv("HEDDLE_SHM", "0", 1);
  const auto run = run_ranks("memory", 3);
  ::unsetenv("HEDDLE_SHM");
  for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(run.said.at(rank), HasSubstr("sum 3.000000"));
  expect_all_say(run, 3, run.said.at(0));
  EXPECT_EQ(run.err, "");
}

TEST(ShmMemory, AnotherValueOfTheVariableIsRefused) {
  ::setenv("HEDDLE_SHM", "yes", 1);
  const auto run = run_ranks("memory", 2);
  ::unsetenv("HEDDLE_SHM");
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.said.at(0), HasSubstr("error[usage] HEDDLE_SHM: 'yes' is neither 1 nor 0"));
}

TEST(ShmMemory, WarnsOnceAndUsesGlooWithoutRoom) {
  const auto run = run_ranks("memory", 3, {.shared_memory = 4096});
  expect_all_say(run, 3, "0 arenas, 0 names, sum 3.000000");
  const std::string warning =
      "shared memory is not available for the ranks of this machine (rank 0: no room in shared memory: No "
      "space "
      "left on device): they use Gloo, which is much slower";
  EXPECT_THAT(run.err, HasSubstr(warning));
  EXPECT_EQ(run.err.find(warning), run.err.rfind(warning));
}

// The first group fits into the limit. The second group does not fit on rank 1.
const Known kTwoGroups("two_groups", [](Rendezvous& rendezvous) {
  std::string text;
  std::vector<std::unique_ptr<Communicator>> groups;
  for (const char* name : {"first", "second"}) {
    auto& group = *groups.emplace_back(rendezvous.group(name, everyone(rendezvous)));
    auto value = at::ones({70000}), more = at::ones({3}), sent = at::full({5}, 9.0);
    auto one = group.all_reduce(value), two = group.all_reduce(more, Reduce::max);
    if (rendezvous.rank() == 0) group.send(sent, 1, 5)->wait();
    if (rendezvous.rank() == 1) group.receive(sent.zero_(), 0, 5)->wait();
    one->wait(), two->wait();
    text += std::to_string(value.sum().item<double>() + sent.sum().item<double>()) + " ";
  }
  return text;
});

TEST(ShmMemory, UsesGlooOnAllRanksWithoutRoomOnOne) {
  const auto run = run_ranks("two_groups", 3, {.shared_memory = 7 << 19, .scarce_rank = 1});
  for (const int rank : {0, 1, 2}) EXPECT_EQ(run.said.at(rank), "210045.000000 210045.000000 ");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err,
              HasSubstr("shared memory is not available for the group second (no room in shared memory: "
                        "No space left on device): they use Gloo, which is much slower"));
  EXPECT_THAT(run.err, Not(HasSubstr("the group first")));
}

// Rank 0 sends on a group without shared memory before rank 1 has created the group, as pipeline stages do.
// Rank 1 first needs rank 0 in the other group.
const Known kBeforeGloo("sends_before_gloo_connects", [](Rendezvous& rendezvous) {
  auto first = rendezvous.group("first", everyone(rendezvous)),
       second = rendezvous.group("second", everyone(rendezvous));
  auto large = at::ones({1 << 20}), one = at::full({16}, 1.0), two = at::full({16}, 2.0);
  auto sum = first->all_reduce(large);
  std::vector<std::unique_ptr<Work>> sends;
  if (rendezvous.rank() == 0) {
    sends.push_back(second->send(one, 1, 3));
    sends.push_back(second->send(two, 1, 3));
  }
  sum->wait();
  if (rendezvous.rank() == 1) {
    second->receive(one.zero_(), 0, 3)->wait();
    second->receive(two.zero_(), 0, 3)->wait();
  }
  for (auto& send : sends) send->wait();
  std::ostringstream text;
  for (const auto& value : {large, one, two}) text << value[15].item<float>() << " ";
  return text.str();
});

TEST(ShmMemory, DoesNotBlockGroupsWhileAnotherConnects) {
  expect_all_say(run_ranks("sends_before_gloo_connects", 2, {.shared_memory = 4500000}), 2, "2 1 2 ");
}

// Rank 0 has left the first group and reused its memory for the second before other ranks open the first.
const Known kLeaves("one_leaves", [](Rendezvous& rendezvous) {
  auto first = rendezvous.group("pp", everyone(rendezvous));
  if (rendezvous.rank() == 0) first.reset();
  auto second = rendezvous.group("dp", everyone(rendezvous));
  auto value = at::ones({3});
  second->all_reduce(value)->wait();
  if (rendezvous.rank() == 1) first->send(value, 2, 1)->wait();
  if (rendezvous.rank() == 2) first->receive(value.zero_(), 1, 1)->wait();
  return std::to_string(value[0].item<double>());
});

TEST(ShmMemory, KeepsAGroupWhenAMemberLeavesWithoutACall) {
  expect_all_say(run_ranks("one_leaves", 3, {.timeout = std::chrono::seconds(5)}), 3, "3.000000");
}

// Rank 2 dies in a gather of many rounds. Rank 0 gets the error and reuses the memory. Only then rank 1
// arrives with its part.
const Known kGivenUp("given_up", [](Rendezvous& rendezvous) {
  constexpr int64_t kPart = 600000;
  auto group = rendezvous.group("dp", everyone(rendezvous));
  std::vector<float> memory(3 * kPart);
  auto whole = at::from_blob(memory.data(), {3 * kPart}, at::kFloat), part = at::ones({kPart});
  const std::string folder = std::getenv("HEDDLE_TEST_FOLDER");
  const auto await = [&](const char* mark) {
    while (!std::filesystem::exists(folder + mark)) std::this_thread::yield();
  };
  if (rendezvous.rank() == 1) await("/first");
  auto work = group->all_gather(whole, part);
  if (rendezvous.rank() == 2) ::kill(::getpid(), SIGKILL);
  try {
    work->wait();
  } catch (const Error&) {
    if (rendezvous.rank() == 1) std::ofstream(folder + "/second") << "here";
    if (rendezvous.rank() == 1) throw;
  }
  std::fill(memory.begin(), memory.end(), 7.0f);
  std::ofstream(folder + "/first") << "here";
  await("/second");
  const auto others = std::count_if(memory.begin(), memory.end(), [](float value) { return value != 7.0f; });
  return std::to_string(others) + " changed";
});

TEST(ShmMemory, NothingIsWrittenAfterTheErrorOfALostRank) {
  EXPECT_EQ(run_ranks("given_up", 3).said.at(0), "0 changed");
}

// More groups than directory entries, and far more than fit into the memory.
const Known kManyGroups("many_groups", [](Rendezvous& rendezvous) {
  double sum = 0;
  for (int i = 0; i < 3000; ++i) {
    auto group = rendezvous.group("dp", everyone(rendezvous));
    auto value = at::ones({2});
    group->all_reduce(value)->wait();
    sum += value[0].item<double>();
  }
  return std::to_string(sum);
});

TEST(ShmMemory, GroupsThatEndGiveTheirMemoryBack) {
  expect_all_say(run_ranks("many_groups", 2, {.shared_memory = 32 << 20}), 2, "6000.000000");
}

// Most groups are never used, so their members never connect.
const Known kUnusedGroups("unused_groups", [](Rendezvous& rendezvous) {
  for (int i = 0; i < 3000; ++i) {
    rendezvous.group("dp", everyone(rendezvous));
    if (i % 500 == 0) rendezvous.barrier("pace");
  }
  auto value = at::ones({2});
  rendezvous.group("dp", everyone(rendezvous))->all_reduce(value)->wait();
  return std::to_string(value[0].item<double>());
});

TEST(ShmMemory, GroupsThatNobodyUsedGiveTheirPlacesBack) {
  expect_all_say(run_ranks("unused_groups", 3, {.shared_memory = 32 << 20}), 3, "3.000000");
}

TEST(ShmMemory, GroupsThatGotNoMemoryGiveTheirPlacesBack) {
  expect_all_say(run_ranks("unused_groups", 2, {.shared_memory = 1 << 20, .scarce_rank = 1}), 2, "2.000000");
}

}  // namespace
}  // namespace heddle

// Collective file I/O: no time limit on slow disks, and an error on all ranks when one rank exits.
#include "heddle/checkpoint/sharded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "heddle/base/error.h"
#include "heddle/transport/threads.h"

namespace heddle {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// Rank 1 finishes its I/O only after rank 0 has waited longer than the timeout of collectives.
TEST(OnEveryRank, WaitsForADiskAsLongAsItTakesAndSaysSo) {
  std::mutex mutex;
  std::vector<std::string> lines;
  std::atomic<bool> warned = false;
  const Log log([&](LogLevel level, std::string_view room, std::string_view text) {
    const std::lock_guard lock(mutex);
    lines.push_back(std::string(room) + " " + std::string(text));
    warned = level == LogLevel::warning;
  });
  ThreadWorld world(3, std::chrono::seconds(2), log);
  world.run([&](Rendezvous& rendezvous) {
    const auto told = checkpoint::gather_on_first(rendezvous, "write", [&] {
      while (rendezvous.rank() == 1 && !warned) std::this_thread::yield();
      return std::string(1, static_cast<char>('a' + rendezvous.rank()));
    });
    if (rendezvous.rank() == 0)
      EXPECT_THAT(told, ElementsAre("a", "b", "c"));
    else
      EXPECT_THAT(told, ElementsAre());
  });
  EXPECT_THAT(lines, Each(MatchesRegex("checkpoint rank 1 has been reading or writing files for [0-9]+ s; "
                                       "the others wait for it")));
}

TEST(OnEveryRank, EndsWhereARankIsGoneWhateverTheOthersDo) {
  std::string said;
  EXPECT_THROW(ThreadWorld::run(2,
                                [&](Rendezvous& rendezvous) {
                                  if (rendezvous.rank() == 1) throw std::runtime_error("gone");
                                  try {
                                    checkpoint::on_every_rank(rendezvous, "write", [] {});
                                  } catch (const Error& lost) {
                                    said = lost.message();
                                    throw;
                                  }
                                }),
               std::runtime_error);
  EXPECT_THAT(said, HasSubstr("failed: gone"));
}

TEST(OnEveryRank, CarriesWhateverWasThrownToEveryRank) {
  std::atomic<int> told = 0;
  ThreadWorld::run(3, [&](Rendezvous& rendezvous) {
    for (const int thrower : {0, 2}) try {
        checkpoint::on_every_rank(rendezvous, "throw", [&] {
          if (rendezvous.rank() == thrower) throw thrower;
        });
      } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()), "error[internal] checkpoint: something unknown was thrown");
        ++told;
      }
  });
  EXPECT_EQ(told, 6);
}

}  // namespace
}  // namespace heddle

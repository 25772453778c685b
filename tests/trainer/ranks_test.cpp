// Ranks of a command: who starts them, and their messages when their launcher ends them.
#include "trainer/cli/launch/ranks.h"
#include "trainer/cli/launch/stop_signals.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "heddle/base/error.h"
#include "tests/thrown.h"
#include "transport/children.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using tests::KnownPlain;
using tests::run_ranks;

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TEST(RankPlan, ReadsTheNumberOfRanksFromTheCommandLine) {
  EXPECT_EQ(cli::plan_ranks(std::nullopt).world_size(), 1);
  EXPECT_EQ(cli::plan_ranks(3).world_size(), 3);
  EXPECT_FALSE(cli::plan_ranks(3).place);
  EXPECT_EQ(tests::thrown_by([&] { cli::plan_ranks(0); }),
            "error[usage] --nproc-per-node: is 0; it must be 1 or more");
}

TEST(RankPlan, DoesNotStartRanksUnderALauncher) {
  const Variable rank("RANK", "0"), address("MASTER_ADDR", "localhost"), port("MASTER_PORT", "4000");
  {
    const Variable world("WORLD_SIZE", "4");
    EXPECT_EQ(cli::plan_ranks(std::nullopt).world_size(), 4);
    cli::release_signals({});  // a rank of several holds signals until it listens
    EXPECT_THAT(tests::thrown_by([&] { cli::plan_ranks(2); }),
                HasSubstr("is given, but torchrun has already started 4 ranks"));
  }
  const Variable world("WORLD_SIZE", "1");
  EXPECT_EQ(cli::plan_ranks(2).world_size(), 2);
  EXPECT_EQ(cli::plan_ranks(std::nullopt).world_size(), 1);
}

// Sets torchrun's variables for a rank of our launcher. The parent's process id determines the port.
void set_variables(const RankPlace& place) {
  ::setenv("RANK", std::to_string(place.rank).c_str(), 1);
  ::setenv("WORLD_SIZE", std::to_string(place.world_size).c_str(), 1);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  ::setenv("MASTER_PORT", std::to_string(20000 + ::getppid() % 12000).c_str(), 1);
}

// Rank 1 dies, and the launcher's SIGTERM reaches the other ranks before they notice, as under torchrun.
const KnownPlain kUnderTorchrun("under_torchrun", [](const RankPlace& place) {
  set_variables(place);
  return cli::run_ranks(cli::plan_ranks(std::nullopt), std::chrono::seconds(30), [](Rendezvous& rendezvous) {
    auto group = rendezvous.group("dp", std::vector<int>{0, 1, 2});
    auto value = at::ones({3});
    group->all_reduce(value)->wait();
    if (rendezvous.rank() == 1) ::kill(::getpid(), SIGKILL);
    ::kill(::getpid(), SIGTERM);
    group->all_reduce(value)->wait();
    return 0;
  });
});

TEST(Ranks, NameTheLostRankEvenWhenTheirLauncherEndsThem) {
  const auto run = run_ranks("under_torchrun", 3);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err,
              HasSubstr("error[rank_lost] mesh: rank 1 died (its process is gone); this rank waited for it "
                        "in all_reduce on dp"));
  EXPECT_THAT(run.err, Not(HasSubstr("signal 15")));
  EXPECT_THAT(run.err, Not(HasSubstr("[c10d]")));
}

const KnownPlain kTerminated("terminated", [](const RankPlace& place) {
  set_variables(place);
  return cli::run_ranks(cli::plan_ranks(std::nullopt), std::chrono::seconds(30),
                        [](Rendezvous& rendezvous) -> int {
                          ::kill(::getpid(), SIGTERM);
                          for (;;) ::pause();
                        });
});

TEST(Ranks, EndOnTheirLaunchersSignalWhenNoRankIsLost) {
  const auto run = run_ranks("terminated", 2);
  EXPECT_EQ(run.status, 1);
  EXPECT_FALSE(run.left_behind);
  EXPECT_THAT(run.err, HasSubstr("error[rank_lost] launch: this rank was stopped by its launcher (SIGTERM)"));
}

}  // namespace
}  // namespace heddle

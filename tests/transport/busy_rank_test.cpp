// A rank is lost while the other ranks' main threads are busy and only a background thread waits.
#include <gmock/gmock.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "heddle/base/error.h"
#include "heddle/transport/join.h"
#include "transport/children.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

const tests::Known kBusyAtDisk("busy_at_its_disk", [](Rendezvous& rendezvous) -> std::string {
  rendezvous.barrier("start");
  if (rendezvous.rank() == 1) ::kill(::getpid(), SIGKILL);
  std::thread beside([&] {
    try {
      rendezvous.barrier("disk");
    } catch (const Error&) {
    }
  });
  for (;;) ::pause();
});

TEST(BusyRank, IsEndedThoughAThreadBesideItHasTheError) {
  const auto run = tests::run_ranks("busy_at_its_disk", 3, {});
  EXPECT_EQ(run.status, 1);
  EXPECT_FALSE(run.left_behind);
  for (const int rank : {0, 2})
    EXPECT_THAT(run.said.at(rank), HasSubstr("error[rank_lost] mesh: rank 1 ")) << run.err;
}

}  // namespace
}  // namespace heddle

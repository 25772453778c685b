// Lock of a checkpoint directory, which only one run at a time may hold.
#include "lib/run/checkpointing/run_lock.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <thread>

#include "checkpoint/folder.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;
using tests::error_of;
using tests::Folder;
using namespace std::chrono_literals;

TEST(RunLock, IsHeldByOneRunAtATime) {
  const Folder folder;
  refuse_where_a_run_saves(folder / "run");  // the directory does not exist
  {
    const RunLock first(folder / "run");
    EXPECT_TRUE(first.is_held());
    const std::string held =
        "error[config] checkpoint.checkpoint_dir: another run saves in FOLDER/run: process " +
        std::to_string(::getpid()) + " on ";
    EXPECT_THAT(error_of(folder, [&] { RunLock second(folder / "run"); }), HasSubstr(held));
    for (int time = 0; time < 2; ++time)  // a check does not change the lock
      EXPECT_THAT(error_of(folder, [&] { refuse_where_a_run_saves(folder / "run", 30ms); }), HasSubstr(held));
  }
  refuse_where_a_run_saves(folder / "run");
  EXPECT_TRUE(RunLock(folder / "run").is_held());
}

TEST(RunLock, WaitsForARunThatIsEnding) {
  const Folder folder;
  auto first = std::make_unique<RunLock>(folder / "run");
  std::thread ends([&] {
    std::this_thread::sleep_for(50ms);
    first.reset();
  });
  refuse_where_a_run_saves(folder / "run", 60s);
  ends.join();
  EXPECT_TRUE(RunLock(folder / "run").is_held());
}

TEST(RunLock, IsNotHeldIfItsFileCannotBeCreated) {
  const Folder folder;
  folder.write("file", "");
  EXPECT_FALSE(RunLock(folder / "file/run").is_held());
}

}  // namespace
}  // namespace heddle

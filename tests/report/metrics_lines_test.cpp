// Resuming a run whose metrics path is a pipe.
#include "lib/report/metrics_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/folder.h"

namespace heddle {
namespace {

TEST(MetricsLines, ReadNothingFromAPipe) {
  const tests::Folder folder;
  const std::filesystem::path pipe = folder / "metrics";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int both = ::open(pipe.c_str(), O_RDWR | O_NONBLOCK);
  ASSERT_GE(both, 0);
  const std::string line = "{\"step\": 1, \"loss\": 2}\n";
  ASSERT_EQ(::write(both, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  ::alarm(20);  // reading the pipe to its end would block
  EXPECT_TRUE(keep_before(pipe, 5).empty());
  ::alarm(0);
  char got[64];
  EXPECT_EQ(::read(both, got, sizeof got), static_cast<ssize_t>(line.size()));
  ::close(both);
}

}  // namespace
}  // namespace heddle

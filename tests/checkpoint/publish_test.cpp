// Atomic publication of checkpoint directories and of the links LATEST and BEST.
#include "heddle/checkpoint/sharded.h"

#include <gtest/gtest.h>

#include "checkpoint/folder.h"
#include "lib/checkpoint/safetensors/checksum.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using tests::error_of;
using tests::Folder;

TEST(Publish, ShowsADirectoryOnlyWhenItIsWhole) {
  const Folder folder;
  const fs::path directory = folder / "runs/epoch_0_step_3";
  checkpoint::open_stage(directory);
  fs::create_directories(checkpoint::stage_of(directory) / "model");
  folder.write("runs/epoch_0_step_3.incomplete/model/one", "1");
  EXPECT_FALSE(fs::exists(directory));
  checkpoint::publish(directory);
  EXPECT_TRUE(fs::exists(directory / "model/one"));
  EXPECT_FALSE(fs::exists(checkpoint::stage_of(directory)));
}

TEST(Publish, ReplacesWhatAnInterruptedSaveHasLeft) {
  const Folder folder;
  checkpoint::open_stage(folder / "a");
  folder.write("a.incomplete/old", "1");
  checkpoint::open_stage(folder / "a");
  EXPECT_TRUE(fs::is_empty(folder / "a.incomplete"));
}

TEST(Publish, RefusesADirectoryThatIsPublished) {
  const Folder folder;
  fs::create_directories(folder / "a");
  folder.write("a/one", "1");
  EXPECT_EQ(error_of(folder, [&] { checkpoint::open_stage(folder / "a"); }),
            "error[io] FOLDER/a: Checkpoint directory FOLDER/a already holds a published checkpoint.\n"
            "  hint: remove it, or give another directory (a recipe: checkpoint.checkpoint_dir)");
}

TEST(Publish, ReplacesAnEmptyDirectory) {
  const Folder folder;
  fs::create_directories(folder / "a");
  checkpoint::open_stage(folder / "a");
  folder.write("a.incomplete/one", "1");
  checkpoint::publish(folder / "a");
  EXPECT_TRUE(fs::exists(folder / "a/one"));
}

TEST(Publish, PointsALinkAtOneDirectoryAfterAnother) {
  const Folder folder;
  EXPECT_EQ(checkpoint::pointed(folder / "LATEST"), "");
  checkpoint::point(folder / "LATEST", "one");
  checkpoint::point(folder / "LATEST", "two");
  EXPECT_EQ(checkpoint::pointed(folder / "LATEST"), "two");
  folder.write("BEST.txt", "three\n");
  EXPECT_EQ(checkpoint::pointed(folder / "BEST"), "three");
}

// A checkpoint directory copied from a file system without symbolic links has LATEST.txt instead of LATEST.
TEST(Publish, RemovesAStalePointerText) {
  const Folder folder;
  folder.write("LATEST.txt", "one\n");
  EXPECT_EQ(checkpoint::pointed(folder / "LATEST"), "one");
  checkpoint::point(folder / "LATEST", "two");
  EXPECT_EQ(checkpoint::pointed(folder / "LATEST"), "two");
  fs::remove(folder / "LATEST");
  EXPECT_EQ(checkpoint::pointed(folder / "LATEST"), "");
}

TEST(Publish, FollowsAnAnnouncedLinkOnceItsTargetExists) {
  const Folder folder;
  fs::create_directories(folder / "one");
  checkpoint::point(folder / "LATEST", "one");
  checkpoint::announce(folder / "LATEST", "two");
  EXPECT_EQ(checkpoint::pointed(folder / "LATEST"), "one");
  fs::create_directories(folder / "two");  // the process exits before point()
  EXPECT_EQ(checkpoint::pointed(folder / "LATEST"), "two");
  checkpoint::point(folder / "LATEST", "two");
  EXPECT_FALSE(fs::is_symlink(folder / ".LATEST.new"));
}

// A process may exit between announce() and point() in several consecutive runs.
TEST(Publish, KeepsThePointerOfWhatWasPublished) {
  for (const bool links : {true, false}) {
    const Folder folder;
    if (!links) fs::create_directories(folder / ".LATEST.new/in_the_way");  // makes symlinks fail
    for (const char* name : {"one", "two"}) {
      checkpoint::announce(folder / "LATEST", name);
      fs::create_directories(folder / name);
    }
    checkpoint::announce(folder / "LATEST", "three");
    EXPECT_EQ(checkpoint::pointed(folder / "LATEST"), "two");
    EXPECT_EQ(fs::is_symlink(folder / "LATEST"), links);
    fs::create_directories(folder / "three");
    EXPECT_EQ(checkpoint::pointed(folder / "LATEST"), "three");
  }
}

TEST(Publish, MakesDirectoriesWithThoseAboveThem) {
  const Folder folder;
  checkpoint::make_directories(folder / "a/b/../c/");
  checkpoint::make_directories(folder / "a");
  EXPECT_TRUE(fs::is_directory(folder / "a/c"));
  EXPECT_FALSE(fs::exists(folder / "a/b"));
  folder.write("file", "");
  EXPECT_EQ(error_of(folder, [&] { checkpoint::make_directories(folder / "file/a"); }),
            "error[io] FOLDER/file/a: cannot be created: Not a directory\n"
            "  hint: check the path, its permissions and the room on the disk");
}

// fsync() fails on these files because they have nothing to sync.
TEST(Publish, TakesAFileSystemThatHasNothingToSync) {
  const Folder folder;
  EXPECT_NO_THROW(checkpoint::sync("/proc"));
  EXPECT_NO_THROW(checkpoint::sync("/dev/null"));
  EXPECT_EQ(error_of(folder, [&] { checkpoint::sync(folder / "none"); }),
            "error[io] FOLDER/none: cannot be synced: No such file or directory\n"
            "  hint: check the path, its permissions and the room on the disk");
}

TEST(Checksum, ChangesWithEveryBitAndWithTheLength) {
  for (const size_t length : {size_t{1}, size_t{7}, size_t{31}, size_t{32}, size_t{100}}) {
    std::string bytes(length, 'x');
    const std::string sum = checkpoint::checksum(bytes);
    for (size_t bit = 0; bit < length * 8; ++bit) {
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
      EXPECT_NE(checkpoint::checksum(bytes), sum) << bit << " of " << length;
      bytes[bit / 8] = 'x';
    }
    EXPECT_NE(checkpoint::checksum(bytes + std::string(1, '\0')), sum);
  }
  EXPECT_EQ(checkpoint::checksum(""), checkpoint::checksum(""));
}

}  // namespace
}  // namespace heddle

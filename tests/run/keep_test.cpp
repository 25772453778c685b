// Retention of checkpoints, and targets of the pointers.
#include "lib/run/checkpointing/keep.h"

#include "lib/run/loop/clean_up.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <set>

#include "checkpoint/folder.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/run/checkpointing/resume.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::error_of;
using tests::Folder;
using KeptNames = std::set<std::string>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string name_of(int64_t step) {
  return "epoch_0_step_" + std::to_string(step);
}

// Creates a complete checkpoint directory with its losses.
fs::path publish(const Folder& folder, int64_t step, const Losses& losses = {}) {
  const std::string name = name_of(step);
  for (const char* part : {"model", "optim"}) {
    fs::create_directories(folder / (name + "/" + part));
    folder.write(name + "/" + part + "/manifest.json", "{}");
  }
  folder.write(name + "/step_scheduler.json", "{}");
  folder.write(name + "/losses.json", to_json(losses));
  return folder / name;
}

KeptNames names_in(const Folder& folder) {
  KeptNames names;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    names.insert(entry.path().filename().string());
  return names;
}

struct Root {
  Folder folder;
  CheckpointSection section;

  void save(int64_t step, std::map<std::string, double> validation = {}) const {
    const Losses losses{1.0, std::move(validation)};
    keep(section, publish(folder, step, losses), losses, Log());
  }
  std::string latest() const { return checkpoint::pointed(folder / "LATEST"); }
  std::string lowest() const { return checkpoint::pointed(folder / "LOWEST_VAL"); }
};

TEST(Keep, KeepsAllCheckpointsByDefault) {
  Root root;
  for (int step = 0; step < 5; ++step) root.save(step);
  EXPECT_EQ(checkpoints_in(root.folder.path()).size(), 5u);
  EXPECT_EQ(root.latest(), "epoch_0_step_4");
  EXPECT_EQ(root.lowest(), "");
}

TEST(Keep, KeepsTheNewestAndThoseThatPointersName) {
  Root root;
  root.section.max_recent = 2;
  root.section.best_set = "";
  const double losses[] = {3.0, 1.0, 2.0, 2.5, 2.0};
  for (int step = 0; step < 5; ++step) root.save(step, {{"", losses[step]}});
  EXPECT_EQ(names_in(root.folder),
            (KeptNames{"LATEST", "LOWEST_VAL", "epoch_0_step_1", "epoch_0_step_3", "epoch_0_step_4"}));
  EXPECT_EQ(root.lowest(), "epoch_0_step_1");
  root.save(5, {{"", 0.5}});
  EXPECT_EQ(names_in(root.folder), (KeptNames{"LATEST", "LOWEST_VAL", "epoch_0_step_4", "epoch_0_step_5"}));
}

// In a run that was resumed from an earlier step, the highest steps are not the newest checkpoints.
TEST(Keep, KeepsTheTargetOfLatestAmongLaterSteps) {
  Root root;
  root.section.max_recent = 1;
  publish(root.folder, 7);
  publish(root.folder, 9);
  root.save(5);
  EXPECT_EQ(names_in(root.folder), (KeptNames{"LATEST", "epoch_0_step_5", "epoch_0_step_9"}));
}

TEST(Keep, IgnoresIncompleteDirectories) {
  Root root;
  root.section.max_recent = 1;
  fs::create_directories(root.folder / "epoch_0_step_8.incomplete/model");
  fs::create_directories(root.folder / "epoch_0_step_9/model");  // only a model
  fs::create_directories(root.folder / "mine");
  root.save(1);
  root.save(2);
  EXPECT_EQ(names_in(root.folder),
            (KeptNames{"LATEST", "epoch_0_step_2", "epoch_0_step_8.incomplete", "epoch_0_step_9", "mine"}));
}

TEST(Keep, RenamesADirectoryBeforeRemovingItsFiles) {
  Root root;
  root.section.max_recent = 1;
  root.save(1);
  // Simulates an interrupted removal: the directory is renamed, but its files remain.
  fs::rename(root.folder / "epoch_0_step_1", root.folder / "epoch_0_step_1.removed");
  EXPECT_TRUE(checkpoints_in(root.folder.path()).empty());
  EXPECT_THAT(sweep(root.folder.path()), ElementsAre("epoch_0_step_1.removed"));
}

// Switches to the user nobody, because root may remove everything.
class AsNobody {
 public:
  AsNobody() { EXPECT_EQ(::seteuid(user_ == 0 ? 65534 : user_), 0); }
  ~AsNobody() { EXPECT_EQ(::seteuid(user_), 0); }

 private:
  const uid_t user_ = ::geteuid();
};

TEST(Keep, WarnsOfDirectoriesThatItCannotRemove) {
  Root root;
  root.section.max_recent = 1;
  root.save(1);
  fs::permissions(root.folder.path(), fs::perms::all);
  fs::permissions(root.folder / "epoch_0_step_1/model", static_cast<fs::perms>(0555));
  const fs::path next = publish(root.folder, 2);
  std::vector<std::string> said;
  const Log log([&](LogLevel, std::string_view, std::string_view text) { said.emplace_back(text); });
  {
    const AsNobody nobody;
    keep(root.section, next, {}, log);
  }
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0], (root.folder / "epoch_0_step_1").string() +
                         " exceeds max_recent_checkpoints and cannot be removed: Permission denied");
  EXPECT_EQ(root.latest(), "epoch_0_step_2");
  EXPECT_EQ(checkpoints_in(root.folder.path()).size(), 1u);  // it is no longer a checkpoint all the same
  fs::permissions(root.folder / "epoch_0_step_1.removed/model", fs::perms::owner_all);
}

TEST(Best, IsTheLowestFiniteLossOfItsSet) {
  Root root;
  root.section.best_set = "code";
  root.save(1, {{"text", 1.0}});
  EXPECT_EQ(root.lowest(), "");
  root.save(2, {{"text", 1.0}, {"code", kNan}});
  EXPECT_EQ(root.lowest(), "");
  root.save(3, {{"text", 1.0}, {"code", 5.0}});
  EXPECT_EQ(root.lowest(), "epoch_0_step_3");
  root.save(4, {{"text", 0.5}, {"code", 5.0}});
  EXPECT_EQ(root.lowest(), "epoch_0_step_3");  // an equal loss does not replace it
  root.save(5, {{"code", -std::numeric_limits<double>::infinity()}});
  EXPECT_EQ(root.lowest(), "epoch_0_step_3");
  root.save(6, {{"text", 9.0}, {"code", 4.5}});
  EXPECT_EQ(root.lowest(), "epoch_0_step_6");
}

TEST(Best, IsComparedWithTheLossesInThePointersTarget) {
  Root root;
  root.section.best_set = "";
  publish(root.folder, 1, {1.0, {{"", 2.0}}});
  checkpoint::point(root.folder / "LOWEST_VAL", "epoch_0_step_1");
  root.save(2, {{"", 2.5}});
  EXPECT_EQ(root.lowest(), "epoch_0_step_1");
  fs::remove_all(root.folder / "epoch_0_step_1");
  root.save(3, {{"", 2.7}});
  EXPECT_EQ(root.lowest(), "epoch_0_step_3");
}

TEST(Losses, RoundTrip) {
  const Folder folder;
  const auto read = [&](const Losses& losses, const std::string& set) {
    return validation_loss(folder.write("losses.json", to_json(losses)), set);
  };
  EXPECT_EQ(to_json({1.5, {{"", 2.25}}}), "{\n \"train_loss\": 1.5,\n \"val_loss\": 2.25\n}\n");
  EXPECT_EQ(read({1.5, {{"", 2.25}}}, ""), 2.25);
  EXPECT_EQ(read({1.5, {{"", 2.25}}}, "code"), std::nullopt);
  EXPECT_EQ(read({1.5, {{"", 2.25}, {"code", 3.5}}}, ""), 2.25);
  EXPECT_EQ(read({1.5, {{"", 2.25}, {"code", 3.5}}}, "code"), 3.5);
  EXPECT_EQ(read({1.5, {{"code", kNan}}}, "code"), std::nullopt);
  EXPECT_EQ(read({1.5, {}}, ""), std::nullopt);
  EXPECT_EQ(validation_loss(folder.write("losses.json", "{cut"), ""), std::nullopt);
  EXPECT_EQ(validation_loss(folder / "none", ""), std::nullopt);
}

TEST(Pointers, AreTextFilesWithoutLinkSupport) {
  const Folder folder;
  checkpoint::point(folder / "LATEST", "epoch_0_step_1");
  folder.write("x", "");
  fs::create_directories(folder / ".LATEST.new/in_the_way");  // simulates a file system without links
  checkpoint::point(folder / "LATEST", "epoch_0_step_2");
  EXPECT_FALSE(fs::is_symlink(folder / "LATEST"));
  EXPECT_EQ(checkpoint::pointed(folder / "LATEST"), "epoch_0_step_2");
  std::ifstream text(folder / "LATEST.txt");
  std::string line;
  std::getline(text, line);
  EXPECT_EQ(line, "epoch_0_step_2");
}

TEST(Pointers, AreCompletedFromTheAnnouncementAfterPublication) {
  Root root;
  root.section.best_set = "";
  root.save(1, {{"", 3.0}});
  announce(root.section, root.folder / "epoch_0_step_2", {1.0, {{"", 2.0}}});
  EXPECT_EQ(root.latest(), "epoch_0_step_1");
  EXPECT_EQ(root.lowest(), "epoch_0_step_1");
  publish(root.folder, 2, {1.0, {{"", 2.0}}});
  EXPECT_EQ(root.latest(), "epoch_0_step_2");
  EXPECT_EQ(root.lowest(), "epoch_0_step_2");
}

// The checkpoint was never published, and another run reaches a different loss at its step.
TEST(Pointers, DropAnAnnouncementOfAnUnpublishedCheckpoint) {
  Root root;
  root.section.best_set = "";
  root.save(1, {{"", 3.0}});
  announce(root.section, root.folder / "epoch_0_step_2", {1.0, {{"", 2.0}}});
  announce(root.section, root.folder / "epoch_0_step_2", {1.0, {{"", 3.5}}});
  publish(root.folder, 2, {1.0, {{"", 3.5}}});
  EXPECT_EQ(root.latest(), "epoch_0_step_2");
  EXPECT_EQ(root.lowest(), "epoch_0_step_1");
}

// A run ended before the link was updated. The link must not point at the checkpoint that is removed.
TEST(Pointers, AreUpdatedBeforeTheirTargetIsRemoved) {
  Root root;
  root.section.max_recent = 1;
  root.section.best_set = "";
  root.save(1, {{"", 3.0}});
  publish(root.folder, 2, {1.0, {{"", 2.0}}});
  checkpoint::announce(root.folder / "LOWEST_VAL", "epoch_0_step_2");
  root.save(3, {{"", 2.5}});
  EXPECT_EQ(fs::read_symlink(root.folder / "LOWEST_VAL"), "epoch_0_step_2");
  EXPECT_EQ(names_in(root.folder), (KeptNames{"LATEST", "LOWEST_VAL", "epoch_0_step_2", "epoch_0_step_3"}));
}

TEST(Sweep, RemovesOnlyLeftoversOfInterruptedRuns) {
  const Folder folder;
  publish(folder, 1);
  for (const char* name : {"training.jsonl.tmp.17", "validation_code.jsonl.tmp.17", "loss.svg.tmp.17",
                           ".LATEST.txt.new.tmp.17", "training.jsonl", "notes.tmp.17"})
    folder.write(name, "");
  for (const char* name : {"epoch_0_step_2.incomplete/model", "epoch_1_step_7.removed/optim",
                           "mine.incomplete", "epoch_0_step_3", "epoch_0_step_x.incomplete"})
    fs::create_directories(folder / name);
  EXPECT_THAT(sweep(folder.path()),
              ElementsAre(".LATEST.txt.new.tmp.17", "epoch_0_step_2.incomplete", "epoch_1_step_7.removed",
                          "loss.svg.tmp.17", "training.jsonl.tmp.17", "validation_code.jsonl.tmp.17"));
  EXPECT_EQ(names_in(folder), (KeptNames{"epoch_0_step_1", "epoch_0_step_3", "epoch_0_step_x.incomplete",
                                         "mine.incomplete", "notes.tmp.17", "training.jsonl"}));
}

}  // namespace
}  // namespace heddle

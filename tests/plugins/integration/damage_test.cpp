// Damaged checkpoints: every rank reports the error, or the results equal those of an intact checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <sstream>

#include "plugins/whole_runs.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("Damage.*");

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

const Topology kTwo{"two", 2, "{strategy: fsdp2, mp_policy: {param_dtype: float32, reduce_dtype: float32}}"};
const Topology kOne{"one", 1, "{strategy: single}"};
constexpr int kStopStep = 4, kRunSteps = 6;
const std::string kStopped = "/epoch_0_step_3";

std::string bytes_of(const fs::path& file) {
  std::ostringstream out;
  out << std::ifstream(file, std::ios::binary).rdbuf();
  return out.str();
}

void put(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

// A checkpoint of two ranks, and copies of it to damage.
class Damage : public ::testing::Test {
 protected:
  void SetUp() override {
    runs_.train(kTwo, "sound", kStopStep);
    want_ = runs_.train(kTwo, "rest", kRunSteps, "sound" + kStopped);
  }

  // Returns the error of each rank after `damage`. Empty: the run continued with the results of an intact
  // checkpoint.
  std::vector<std::string> refusals(const Topology& topology,
                                    const std::function<void(const fs::path&)>& damage) {
    fs::remove_all(runs_ / "copy");
    fs::remove_all(runs_ / "out");
    fs::copy(runs_ / ("sound" + kStopped), runs_ / "copy", fs::copy_options::recursive);
    damage(runs_ / "copy");
    std::vector<std::string> said;
    const Told got = runs_.train(topology, "out", kRunSteps, "copy", &said);
    if (said.empty() && topology.ranks == kTwo.ranks) {
      EXPECT_EQ(got.losses, want_.losses);
      EXPECT_EQ(got.norms, want_.norms);
    }
    for (std::string& one : said)
      for (size_t at; (at = one.find((runs_ / "copy").string())) != std::string::npos;)
        one.replace(at, (runs_ / "copy").string().size(), "HERE");
    return said;
  }

  // Returns all files that a run reads.
  std::vector<std::string> files() const {
    std::vector<std::string> out{"step_scheduler.json"};
    for (const char* part : {"model", "optim"})
      for (const auto& entry : fs::directory_iterator(runs_ / ("sound" + kStopped) / part))
        if (entry.is_regular_file())
          out.push_back(std::string(part) + "/" + entry.path().filename().string());
    return out;
  }

  WholeRuns runs_;
  Told want_;
};

TEST_F(Damage, IsReportedByEveryRankForAnyByte) {
  ASSERT_THAT(files(), SizeIs(7));
  for (const std::string& file : files()) {
    const std::string sound = bytes_of(runs_ / ("sound" + kStopped) / file);
    for (size_t i = 0; i < 12; ++i) {
      const size_t at = (sound.size() - 1) * i / 11;
      std::string changed = sound;
      changed[at] = static_cast<char>(changed[at] ^ 4);
      SCOPED_TRACE(file + ", byte " + std::to_string(at));
      const auto said = refusals(kTwo, [&](const fs::path& copy) { put(copy / file, changed); });
      if (said.empty()) continue;  // a byte without meaning
      EXPECT_THAT(said, Each(AllOf(StartsWith("error[input] HERE/" + file), HasSubstr("\n  hint: "))));
      EXPECT_EQ(std::set<std::string>(said.begin(), said.end()).size(), 1u);
    }
  }
}

TEST_F(Damage, IsReportedByEveryRankIfAFileIsTruncated) {
  for (const std::string& file : files())
    for (const size_t left : {0, 7, 100}) {
      SCOPED_TRACE(file + ", " + std::to_string(left) + " bytes");
      const std::string sound = bytes_of(runs_ / ("sound" + kStopped) / file);
      for (const std::string& cut : {sound.substr(0, left), sound.substr(0, sound.size() - 1)}) {
        const auto said = refusals(kTwo, [&](const fs::path& copy) { put(copy / file, cut); });
        if (said.empty() && cut.size() + 1 == sound.size()) continue;  // the end of the last line
        EXPECT_THAT(said,
                    AllOf(::testing::Not(::testing::IsEmpty()),
                          Each(AllOf(StartsWith("error[input] HERE/" + file), HasSubstr("\n  hint: ")))));
      }
    }
}

TEST_F(Damage, IsReportedByEveryRankIfAFileIsMissing) {
  for (const std::string& file : files()) {
    SCOPED_TRACE(file);
    const auto said = refusals(kTwo, [&](const fs::path& copy) { fs::remove(copy / file); });
    const bool shard = file.find("shard") != std::string::npos;
    ASSERT_THAT(said, SizeIs(shard ? 2 : 1));  // without the other file no rank is started
    EXPECT_THAT(said, Each(HasSubstr(shard ? "error[input] HERE/" + file +
                                                 ": cannot be read: No such file or directory"
                                           : "HERE is not a complete checkpoint")));
    EXPECT_THAT(said, Each(HasSubstr("\n  hint: ")));
  }
}

TEST_F(Damage, IsReportedInFilesOfAnotherRank) {
  for (const std::string part : {"model", "optim"}) {
    const std::string one = part + "/shard-00001-" + part + "-00001-of-00001.safetensors",
                      two = part + "/shard-00002-" + part + "-00001-of-00001.safetensors";
    for (const Topology& topology : {kOne, kTwo}) {
      const auto said = refusals(topology, [&](const fs::path& copy) {
        fs::rename(copy / one, copy / "other");
        fs::rename(copy / two, copy / one);
        fs::rename(copy / "other", copy / two);
      });
      ASSERT_THAT(said, SizeIs(topology.ranks));
      EXPECT_THAT(said,
                  Each(AllOf(StartsWith("error[input] HERE/" + part + "/shard"), HasSubstr("\n  hint: "))));
    }
  }
}

TEST_F(Damage, IsReportedIfTheModelBelongsToAnotherCheckpoint) {
  const auto said = refusals(kTwo, [&](const fs::path& copy) {
    fs::remove_all(copy / "model");
    fs::copy(runs_ / "rest/epoch_1_step_5/model", copy / "model", fs::copy_options::recursive);
  });
  EXPECT_THAT(
      said,
      AllOf(::testing::Not(::testing::IsEmpty()),
            Each(AllOf(StartsWith("error[input] HERE/model/manifest.json"),
                       HasSubstr("belongs to another checkpoint than the step_scheduler.json next to it")))));
}

TEST_F(Damage, IsIgnoredInFilesForPeople) {
  for (const char* file : {"losses.json", "config.yaml"}) {
    EXPECT_THAT(refusals(kTwo, [&](const fs::path& copy) { put(copy / file, "\xff{"); }), SizeIs(0));
    EXPECT_THAT(refusals(kTwo, [&](const fs::path& copy) { fs::remove(copy / file); }), SizeIs(0));
  }
}

TEST_F(Damage, LeavesThePreviousCheckpointUsable) {
  runs_.train(kTwo, "sound", kRunSteps);
  std::string file = "sound/epoch_1_step_5/optim/shard-00002-optim-00001-of-00001.safetensors";
  std::string bytes = bytes_of(runs_ / file);
  bytes[bytes.size() - 3] = static_cast<char>(bytes[bytes.size() - 3] ^ 1);
  put(runs_ / file, bytes);
  std::vector<std::string> said;
  runs_.train(kTwo, "sound", kRunSteps + 1, "", &said);
  EXPECT_THAT(said, AllOf(SizeIs(2), Each(HasSubstr("the bytes are not those that were saved"))));
  const Told again = runs_.train(kTwo, "again", kRunSteps, "sound" + kStopped);
  EXPECT_EQ(again.losses, want_.losses);
}

TEST_F(Damage, IsReportedIfAnotherRunSavesConcurrently) {
  runs_.meanwhile = [&] {
    fs::remove(runs_ / "sound/LATEST");
    fs::create_directory_symlink("epoch_1_step_5", runs_ / "sound/LATEST");
    fs::create_directory(runs_ / "sound/epoch_1_step_5");
  };
  std::vector<std::string> said;
  runs_.train(kTwo, "sound", kRunSteps, "", &said);
  const std::string saved = "error[config] checkpoint.checkpoint_dir: another run has saved in " +
                            (runs_ / "sound").string() + " while this run was starting\n";
  EXPECT_THAT(said, AllOf(SizeIs(2), Each(StartsWith(saved))));
}

TEST_F(Damage, LosesNothingWhenLatestIsDamaged) {
  const auto goes_on = [&] { return runs_.train(kTwo, "sound", kRunSteps, "LATEST").steps.size(); };
  const auto begin_again = [&] {
    for (const char* later : {"epoch_1_step_5", "epoch_1_step_6"}) fs::remove_all(runs_ / "sound" / later);
    fs::remove(runs_ / "sound/LATEST");
  };
  begin_again();
  EXPECT_EQ(goes_on(), 6u);
  begin_again();
  fs::create_directory_symlink("epoch_0_step_9", runs_ / "sound/LATEST");
  EXPECT_EQ(goes_on(), 6u);
  fs::remove(runs_ / "sound/LATEST");
  fs::create_directory_symlink("epoch_0_step_3", runs_ / "sound/LATEST");
  fs::create_directory_symlink("epoch_1_step_5", runs_ / "sound/.LATEST.new");  // killed between the two
  EXPECT_EQ(runs_.train(kTwo, "sound", kRunSteps + 1, "LATEST").steps.size(), 7u);
  begin_again();
  fs::create_directories(runs_ / "sound/epoch_0_step_9");  // empty
  EXPECT_EQ(goes_on(), 6u);
}

}  // namespace
}  // namespace heddle::tests

// Hugging Face Hub names resolved to directories on this machine.
#include "lib/data/hub_directory.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "checkpoint/folder.h"
#include "tests/environment_variable.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;
using tests::EnvironmentVariable;
using tests::Folder;

std::filesystem::path put(const Folder& folder, const std::string& name, const std::string& bytes) {
  std::filesystem::create_directories((folder / name).parent_path());
  return folder.write(name, bytes);
}

TEST(HubDirectory, IsASnapshotOfTheCache) {
  const Folder folder;
  const EnvironmentVariable cache("HF_HUB_CACHE", folder.path().string());
  put(folder, "models--org--Model/refs/main", "abc");
  put(folder, "models--org--Model/snapshots/abc/config.json", "{}");
  put(folder, "models--org--Model/snapshots/old/config.json", "{}");
  EXPECT_EQ(hub_directory("org/Model", HubKind::model), folder / "models--org--Model/snapshots/abc");
  EXPECT_EQ(hub_directory("org/Model", HubKind::dataset), "org/Model");
  EXPECT_EQ(hub_directory("org/Other", HubKind::model), "org/Other");
  EXPECT_EQ(hub_directory("Model", HubKind::model), "Model");
  put(folder, "datasets--org--text/snapshots/1/a.json", "{}");
  EXPECT_EQ(hub_directory("org/text", HubKind::dataset), folder / "datasets--org--text/snapshots/1");
}

TEST(HubDirectory, IsNoSnapshotThatNobodyChose) {
  const Folder folder;
  const EnvironmentVariable cache("HF_HUB_CACHE", folder.path().string());
  put(folder, "models--org--Model/snapshots/a/config.json", "{}");
  put(folder, "models--org--Model/snapshots/b/config.json", "{}");
  EXPECT_THAT(
      tests::thrown_by([] { hub_directory("org/Model", HubKind::model); }),
      HasSubstr("holds several snapshots, and no refs/main that names one of them\n  hint: run `hf download "
                "org/Model` to download it again"));
  std::filesystem::create_directories(folder / "models--org--Empty/snapshots/a");
  EXPECT_THAT(tests::thrown_by([] { hub_directory("org/Empty", HubKind::model); }),
              HasSubstr("snapshots/a: is an empty snapshot\n"));
}

TEST(HubDirectory, IsNoOtherSnapshotThanThatOfTheReference) {
  const Folder folder;
  const EnvironmentVariable cache("HF_HUB_CACHE", folder.path().string());
  put(folder, "models--org--Model/refs/main", "abc");
  put(folder, "models--org--Model/refs/v2", "def");
  put(folder, "models--org--Model/snapshots/old/config.json", "{}");
  const std::string place = "error[input] " + (folder / "models--org--Model").string();
  EXPECT_THAT(
      tests::thrown_by([] { hub_directory("org/Model", HubKind::model); }),
      HasSubstr(place + ": holds no snapshot abc, which refs/main names\n  hint: run `hf download org/Model` "
                        "to download it again"));
  EXPECT_THAT(tests::thrown_by([] { hub_directory("org/Model", HubKind::model, "v2"); }),
              HasSubstr(place + ": holds no snapshot def, which refs/v2 names\n"));
  EXPECT_EQ(hub_directory("org/Model", HubKind::model, "old"), folder / "models--org--Model/snapshots/old");
}

TEST(HubDirectory, IsThePathWhereThatExists) {
  const Folder folder;
  put(folder, "org/Model/config.json", "{}");
  EXPECT_EQ(hub_directory(folder / "org/Model", HubKind::model), folder / "org/Model");
}

TEST(HubDirectory, IsThatOfTheFileOfPlaces) {
  const Folder folder;
  const auto model = put(folder, "models of mine/llama/config.json", "{}").parent_path();
  const auto file = folder.write("places", "a/b /x\n\norg/Model " + model.string() + "\n");
  const EnvironmentVariable places("HEDDLE_PLACES", file.string());
  EXPECT_EQ(hub_directory("org/Model", HubKind::model), model);
  EXPECT_EQ(tests::thrown_by([] { hub_directory("a/b", HubKind::model); }),
            "error[input] " + file.string() +
                ":1: /x does not exist; it is the place of a/b\n  hint: correct the line, or remove it");
  folder.write("places", "org/Model " + model.string() + "\nmodel\n");
  EXPECT_EQ(tests::thrown_by([] { hub_directory("org/Model", HubKind::model); }),
            "error[input] " + file.string() + ":2: 'model' has no path\n  hint: a line is NAME PATH");
  const EnvironmentVariable none("HEDDLE_PLACES", (folder / "none").string());
  EXPECT_THAT(tests::thrown_by([] { hub_directory("org/Model", HubKind::model); }),
              HasSubstr("cannot be read; the environment variable HEDDLE_PLACES names it"));
}

TEST(HubDirectory, IsSaidToBeLackingWithTheCommandThatBringsIt) {
  const Folder folder;
  const EnvironmentVariable cache("HF_HUB_CACHE", folder.path().string());
  EXPECT_EQ(hub_directory_hint("org/text", HubKind::dataset),
            "heddle downloads nothing: run `hf download org/text --repo-type dataset` to download it to the "
            "hub's cache (" +
                (folder / "datasets--org--text").string() +
                "), or add a line `org/text PATH` to the file that HEDDLE_PLACES names");
  EXPECT_EQ(hub_directory_hint("models/of/mine", HubKind::model), "");
}

}  // namespace
}  // namespace heddle

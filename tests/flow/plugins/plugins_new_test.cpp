// `heddle plugins new` as a program: the files that it writes, and refusals. tests/packaging builds the
// files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "flow/program.h"

namespace {

using flow::heddle;
using flow::Outcome;
using ::testing::HasSubstr;
using ::testing::Not;

class PluginsNew : public ::testing::Test {
 protected:
  PluginsNew() {
    std::string place = ::testing::TempDir() + "plugins_new_XXXXXX";
    place_ = mkdtemp(place.data());
  }
  ~PluginsNew() override { std::filesystem::remove_all(place_); }

  std::string at(const std::string& name) const { return (place_ / name).string(); }
  static std::string text(const std::filesystem::path& file) {
    std::ostringstream out;
    out << std::ifstream(file).rdbuf();
    return out.str();
  }

  std::filesystem::path place_;
};

TEST_F(PluginsNew, WritesAStrategyWithItsName) {
  const Outcome outcome = heddle({"plugins", "new", at("my_plan")});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(outcome.out, "wrote " + at("my_plan") + "/ from the template 'strategy'; " +
                             at("my_plan/README.md") + " explains how to build and check it\n");
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(at("my_plan"))) {
    files.insert(entry.path().filename().string());
    EXPECT_THAT(text(entry.path()), Not(HasSubstr("hello"))) << entry.path();
  }
  EXPECT_EQ(files, (std::set<std::string>{"CMakeLists.txt", "README.md", "my_plan.cpp", "my_plan.h",
                                          "my_plan.yaml", "my_plan_test.cpp", "plugin.cpp"}));
  EXPECT_THAT(text(at("my_plan/my_plan.h")), HasSubstr("class MyPlan : public heddle::IStrategy"));
  EXPECT_THAT(text(at("my_plan/plugin.cpp")), HasSubstr("HEDDLE_PLUGIN(\"my_plan\", \"0.1.0\")"));
}

TEST_F(PluginsNew, WritesEveryKind) {
  for (const std::string kind : {"strategy", "sharded-strategy", "parallelizer", "schedule", "model",
                                 "optimizer", "transform", "metrics", "dataset"}) {
    const std::string name = "a_" + kind.substr(0, kind.find('-'));
    const Outcome outcome = heddle({"plugins", "new", at(name + "1"), "--kind", kind});
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_TRUE(std::filesystem::exists(at(name + "1/CMakeLists.txt")));
    EXPECT_TRUE(std::filesystem::exists(at(name + "1/" + name + "1_test.cpp")));
    std::filesystem::remove_all(at(name + "1"));
  }
}

TEST_F(PluginsNew, RefusesInvalidNamesAndExistingDirectories) {
  const Outcome spelt = heddle({"plugins", "new", "My-Plan"});
  EXPECT_EQ(spelt.status, 2);
  EXPECT_EQ(spelt.error,
            "error[usage] heddle plugins new: 'My-Plan' is not a name for a plugin\n"
            "  hint: use lowercase letters, digits and _, starting with a letter: my_strategy\n");
  EXPECT_THAT(heddle({"plugins", "new", "single"}).error, HasSubstr("'single' is built into the engine"));
  EXPECT_EQ(
      heddle({"plugins", "new", at("config"), "--kind", "optimizer"}).error,
      "error[usage] heddle plugins new: the class of 'config' would be Config, which is another class of "
      "the template\n  hint: choose another name: my_config\n");
  for (const std::string name : {"fsdp2", "mfsdp"})
    EXPECT_THAT(heddle({"plugins", "new", at(name)}).error,
                HasSubstr("'" + name + "' is a name of the plugin " + HEDDLE_BINARY_DIR + "/plugins/lib"));
  std::filesystem::create_directory(at("mine"));
  const Outcome there = heddle({"plugins", "new", at("mine")});
  EXPECT_EQ(there.status, 2);
  EXPECT_THAT(there.error, HasSubstr("'" + at("mine") + "' already exists\n  hint: choose another name"));
  const Outcome nowhere = heddle({"plugins", "new", at("no/such/mine")});
  EXPECT_EQ(nowhere.status, 2);
  EXPECT_EQ(nowhere.error,
            "error[usage] heddle plugins new: the directory of '" + at("no/such/mine") +
                "' does not exist\n  hint: choose a name in an existing, writable directory\n");
  const Outcome odd = heddle({"plugins", "new", "mine", "--kind", "sofa"});
  EXPECT_EQ(odd.status, 2);
  EXPECT_THAT(odd.error, HasSubstr("unknown template 'sofa' for --kind\n  hint: available kinds: "));
}

}  // namespace

// The registry: search path, names and aliases, and offers that are loaded completely or not at all.
#include "heddle/plugin/registry.h"

#include <cstdlib>

#include "core/plugin/manifest.h"
#include "gallery.h"

namespace {

using gallery::error_of;
using gallery::file;
using gallery::Place;
using heddle::Error;
using heddle::ErrorCode;
using heddle::PluginInfo;
using heddle::PluginRegistry;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Registry, LoadsAFileAndListsItsOffers) {
  PluginRegistry registry({});
  const PluginInfo& info = registry.load(file("plain").string());
  EXPECT_EQ(info.name, "plain");
  EXPECT_EQ(info.version, "1.2.3");
  EXPECT_EQ(info.path, file("plain"));
  EXPECT_THAT(info.offers, ElementsAre("strategy plain (Simple, plain-old)"));
}

TEST(Registry, FindsNamesAndAliasesInAnyCase) {
  const Place place({"plain"});
  for (const char* name : {"plain", "PLAIN", "simple", "Simple", "Plain-Old"}) {
    PluginRegistry registry({place.path()});
    const heddle::OfferedStrategy* strategy = registry.strategy(name);
    ASSERT_NE(strategy, nullptr) << name;
    EXPECT_EQ(strategy->name, "plain");
    EXPECT_THAT(strategy->aliases, ElementsAre("Simple", "plain-old"));
    EXPECT_EQ(strategy, registry.strategy("plain"));
  }
}

TEST(Registry, KnowsEveryNameBeforeItOpensAnything) {
  const Place place({"plain", "throws", "other_torch"});
  const PluginRegistry registry({place.path()});
  EXPECT_THAT(registry.names("strategy"),
              ElementsAre("Simple", "other_torch", "plain", "plain-old", "throws"));
  EXPECT_THAT(registry.names("section"), ElementsAre());
  EXPECT_EQ(registry.loaded().size(), 1u);  // single
}

TEST(Registry, OpensOnlyRequestedPlugins) {
  const Place place({"plain", "throws"});
  PluginRegistry registry({place.path()});
  EXPECT_NE(registry.strategy("plain"), nullptr);
  EXPECT_EQ(registry.loaded().size(), 2u);
  EXPECT_EQ(registry.loaded()[1].name, "plain");
}

TEST(Registry, HasSingleBuiltIn) {
  PluginRegistry registry({});
  const heddle::OfferedStrategy* single = registry.strategy("Single");
  ASSERT_NE(single, nullptr);
  EXPECT_NE(single->make(heddle::Node::map({})), nullptr);
  EXPECT_TRUE(registry.loaded()[0].path.empty());
  EXPECT_THAT(registry.names("strategy"), ElementsAre());
}

TEST(Registry, ReturnsNullForAnUnknownName) {
  const Place place({"plain"});
  PluginRegistry registry({place.path()});
  EXPECT_EQ(registry.strategy("fancy"), nullptr);
  EXPECT_EQ(registry.parallelizer("plain"), nullptr);
  EXPECT_EQ(registry.schedule("plain"), nullptr);
  EXPECT_EQ(registry.section("plain"), nullptr);
}

TEST(Registry, NamesEveryDirectoryAndTheNearestNameWhenAPluginIsMissing) {
  const Place one({"plain"}), two;
  PluginRegistry registry({one.path(), two.path()});
  const Error error = error_of([&] { registry.load("plane"); });
  EXPECT_EQ(error.code(), ErrorCode::plugin_missing);
  EXPECT_EQ(error.message(), "there is no plugin 'plane'; available: plain, single (searched " +
                                 one.path().string() + ", " + two.path().string() + ")");
  EXPECT_EQ(
      error.hint(),
      "did you mean 'plain'? Else name the plugin's directory under 'plugins:' or in HEDDLE_PLUGIN_PATH");
  EXPECT_EQ(PluginRegistry({}).missing("strategy", "x").message(),
            "there is no strategy 'x'; available: single (searched no directory)");
  EXPECT_EQ(PluginRegistry({}).missing("device", "x").message(),
            "there is no device 'x'; available: none (searched no directory)");
}

TEST(Registry, ReportsAMissingPluginFile) {
  const Error error = error_of([] { PluginRegistry({}).load("./nowhere/libheddle_x.so"); });
  EXPECT_EQ(error.code(), ErrorCode::plugin_missing);
  EXPECT_EQ(error.where(), "./nowhere/libheddle_x.so");
  EXPECT_EQ(error.message(), "there is no such plugin file");
}

// The new file is never opened, because it would end the process.
TEST(Registry, RefusesAFileThatWasReplacedAfterItWasRead) {
  const Place place({"plain"});
  PluginRegistry plugins({place.path()});
  const auto path = place.path() / "libheddle_plain.so";
  std::filesystem::remove(path);
  place.add(file("other_torch"), "libheddle_plain.so");
  const Error error = error_of([&] { plugins.strategy("plain"); });
  EXPECT_EQ(error.code(), ErrorCode::plugin_failed);
  EXPECT_EQ(error.where(), path.string());
  EXPECT_THAT(error.message(),
              HasSubstr("the file of the plugin 'plain' 1.2.3 was replaced after it was read: "
                        "it is 'other_torch' 0.1.0 (sdk="));
  EXPECT_EQ(error.hint(), "leave a plugin's file in place while a run starts, and start the run again");
}

TEST(Registry, UsesTheFirstDirectoryThatHasTheName) {
  const Place one({"plain"}), two({"plain"});
  PluginRegistry registry({one.path(), two.path()});
  EXPECT_EQ(registry.load("plain").path.parent_path(), one.path());
  PluginRegistry other({two.path(), one.path()});
  EXPECT_EQ(other.load("plain").path.parent_path(), two.path());
}

TEST(Registry, WarnsOfAHiddenPlugin) {
  const Place one({"plain"}), two({"plain"});
  std::vector<std::string> lines;
  PluginRegistry registry({one.path(), two.path()},
                          heddle::Log([&](heddle::LogLevel level, std::string_view, std::string_view text) {
                            if (level == heddle::LogLevel::warning) lines.emplace_back(text);
                          }));
  registry.strategy("simple");
  EXPECT_THAT(lines, ElementsAre("'" + (one.path() / "libheddle_plain.so").string() + "' hides '" +
                                 (two.path() / "libheddle_plain.so").string() +
                                 "', which offers the strategy 'simple' too"));
}

TEST(Registry, PrefersANamedFileAndWarns) {
  const Place place({"plain"});
  std::vector<std::string> lines;
  PluginRegistry registry({place.path()},
                          heddle::Log([&](heddle::LogLevel level, std::string_view, std::string_view text) {
                            if (level == heddle::LogLevel::warning) lines.emplace_back(text);
                          }));
  registry.load(file("plain").string());
  EXPECT_NE(registry.strategy("plain"), nullptr);
  EXPECT_EQ(registry.loaded().at(1).path, file("plain"));
  EXPECT_THAT(lines, ElementsAre("'" + file("plain").string() + "' hides '" +
                                 (place.path() / "libheddle_plain.so").string() +
                                 "', which offers the strategy 'plain' too"));
}

TEST(Registry, TriesNoOtherDirectoryWhenTheFirstFileDoesNotLoad) {
  const Place good({"plain"}), bad;
  bad.add_cut(file("plain"), "libheddle_plain.so", 2000);
  PluginRegistry registry({bad.path(), good.path()});
  const Error error = error_of([&] { registry.strategy("plain"); });
  EXPECT_EQ(error.code(), ErrorCode::plugin_failed);
  EXPECT_EQ(error.where(), (bad.path() / "libheddle_plain.so").string());
  EXPECT_THAT(error.message(), HasSubstr("the file is cut: it has 2000 bytes"));
}

TEST(Registry, RefusesASecondPluginOfTheSameNameAndNamesBothFiles) {
  const Place place({"plain"});
  const auto second = place.add(file("plain"), "libheddle_copy.so");
  PluginRegistry registry({place.path()});
  const Error error = error_of([&] { registry.strategy("plain"); });
  EXPECT_EQ(error.code(), ErrorCode::plugin_conflict);
  EXPECT_EQ(error.message(), "the strategy 'plain' is offered by two plugins: '" + second.string() +
                                 "' and '" + (place.path() / "libheddle_plain.so").string() + "'");
  EXPECT_EQ(registry.loaded().size(), 1u);
}

TEST(Registry, RefusesASecondPluginOfTheSameAliasAndNamesBothFiles) {
  PluginRegistry registry({});
  registry.load(file("plain").string());
  const Error error = error_of([&] { registry.load(file("namesake").string()); });
  EXPECT_EQ(error.code(), ErrorCode::plugin_conflict);
  EXPECT_EQ(error.message(), "the strategy 'SIMPLE' is there already, from '" + file("plain").string() +
                                 "'; it cannot come from '" + file("namesake").string() + "' too");
  EXPECT_EQ(registry.loaded().size(), 2u);
  EXPECT_EQ(registry.strategy("namesake"), nullptr);
}

TEST(Registry, RefusesTheSameFileTwice) {
  PluginRegistry registry({});
  registry.load(file("plain").string());
  const Error error = error_of([&] { registry.load(file("plain").string()); });
  EXPECT_EQ(error.code(), ErrorCode::plugin_conflict);
  EXPECT_EQ(error.message(), "the plugin 'plain' is loaded already, from '" + file("plain").string() + "'");
  EXPECT_EQ(error.hint(), "name it once");
}

TEST(Registry, ReturnsTheSamePluginWhenItIsNamedAgain) {
  const Place place({"plain"});
  PluginRegistry registry({place.path()});
  EXPECT_EQ(&registry.load("plain"), &registry.load("PLAIN"));
}

TEST(Registry, LoadsNothingOfAPartlyInvalidOffer) {
  const Place place({"promises"});
  PluginRegistry registry({place.path()});
  EXPECT_EQ(error_of([&] { registry.strategy("promises"); }).code(), ErrorCode::plugin_failed);
  EXPECT_EQ(error_of([&] { registry.section("extra"); }).code(), ErrorCode::plugin_failed);
  EXPECT_EQ(registry.loaded().size(), 1u);
}

TEST(Registry, SkipsBrokenFilesInTheListOfStrategies) {
  const Place place({"plain", "throws", "other_torch", "no_manifest"});
  PluginRegistry registry({place.path()});
  std::vector<std::string> names;
  for (const heddle::OfferedStrategy* strategy : registry.all_strategies()) names.push_back(strategy->name);
  EXPECT_THAT(names, ElementsAre("single", "plain"));
}

TEST(Registry, WorksTwiceInOneProcessWithTheSameFile) {
  PluginRegistry one({}), two({});
  one.load(file("plain").string());
  EXPECT_EQ(two.strategy("plain"), nullptr);
  two.load(file("plain").string());
  EXPECT_NE(one.strategy("plain"), two.strategy("plain"));
  EXPECT_NE(two.strategy("plain")->make(heddle::Node::map({})), nullptr);
}

TEST(Registry, HasAFingerprintIndependentOfTheLoadOrder) {
  PluginRegistry one({}), two({});
  one.load(file("plain").string());
  one.load(file("late").string());
  two.load(file("late").string());
  two.load(file("plain").string());
  EXPECT_EQ(one.fingerprint(), two.fingerprint());
  EXPECT_THAT(one.fingerprint(), HasSubstr("abi: " + std::string(heddle::plugin::abi_tag()) + "\n"));
  EXPECT_THAT(one.fingerprint(), ::testing::ContainsRegex("\nplugin plain: 1.2.3 [0-9a-f]+\n"));
}

TEST(SearchPath, ListsTheYamlsThenTheVariablesThenTheEnginesDirectories) {
  setenv("HEDDLE_PLUGIN_PATH", "/first::/second", 1);
  const std::vector<std::filesystem::path> yaml = {"mine"};
  const auto places = heddle::plugin::search_path(yaml);
  unsetenv("HEDDLE_PLUGIN_PATH");
  EXPECT_THAT(places, ElementsAre("mine", "/first", "/second",
                                  std::filesystem::canonical(HEDDLE_BINARY_DIR) / "plugins"));
}

}  // namespace

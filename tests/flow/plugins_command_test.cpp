// `heddle plugins`, run as a program on the gallery and on the plugins of the build.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "program.h"

namespace {

using flow::heddle;
using flow::Outcome;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kGallery = HEDDLE_BINARY_DIR "/tests/bad_plugins";

std::string bad(const std::string& name) {
  return kGallery + "/libheddle_" + name + ".so";
}

TEST(PluginsList, ShowsPapersPlacesAndWhatCannotBeLoaded) {
  const Outcome outcome = heddle({"plugins", "list", kGallery});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out,
              HasSubstr("  built into the engine\n  offers: strategy single, schedule single\n"));
  EXPECT_THAT(outcome.out, HasSubstr("plain 1.2.3\n  file: " + bad("plain") +
                                     "\n  offers: strategy plain (Simple, plain-old)\n"));
  EXPECT_THAT(outcome.out, HasSubstr("other_torch 0.1.0  CANNOT BE LOADED\n"));
  EXPECT_THAT(outcome.out, HasSubstr("  why: the plugin 'other_torch' 0.1.0 was built for another engine"));
  EXPECT_THAT(outcome.out, HasSubstr("no_papers  CANNOT BE LOADED\n"));
  EXPECT_THAT(outcome.out, HasSubstr("looked in: " + kGallery + ", " HEDDLE_BINARY_DIR "/plugins"));
}

TEST(PluginsList, LooksInTheVariablesPlacesToo) {
  const Outcome outcome = heddle({"plugins", "list", "--json"}, {"HEDDLE_PLUGIN_PATH=" + kGallery});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr(R"("plugin":"plain","version":"1.2.3","path":")" + bad("plain") + "\""));
  EXPECT_THAT(outcome.out,
              HasSubstr(R"({"kind":"strategy","name":"plain","aliases":["Simple","plain-old"]})"));
}

TEST(PluginsList, RefusesWhatIsNoDirectory) {
  const Outcome outcome = heddle({"plugins", "list", "/no/such/place"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error, HasSubstr("error[usage] heddle plugins list: '/no/such/place' is no directory"));
}

TEST(PluginsInspect, PrintsTheTableOfAFile) {
  const Outcome outcome = heddle({"plugins", "inspect", bad("plain")});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(outcome.out, "plugin plain 1.2.3\n  file: " + bad("plain") +
                             "\n\n"
                             "strategy plain (also: Simple, plain-old)\n"
                             "  mesh: dp\n"
                             "  refuses: tp\n"
                             "  FIELD     TYPE     DEFAULT  RANGE\n"
                             "  prefetch  integer  2        0 to 8\n"
                             "      Units gathered ahead of use.\n");
}

TEST(PluginsInspect, FindsAPluginByAnAliasInAnyCase) {
  const Outcome outcome = heddle({"plugins", "inspect", "MFSDP"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("strategy megatron_fsdp (also: megatron-fsdp, mfsdp)"));
}

TEST(PluginsInspect, ShowsTheBuiltInStrategy) {
  const Outcome outcome = heddle({"plugins", "inspect", "single"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("  file: built into the engine\n"));
}

TEST(PluginsInspect, NamesEveryPlaceAndTheNearestWhenThereIsNone) {
  const Outcome outcome = heddle({"plugins", "inspect", "fsdp3"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(
      outcome.error,
      HasSubstr("error[plugin_missing] plugin: there is no plugin 'fsdp3'; looked in " HEDDLE_BINARY_DIR
                "/plugins, which hold ddp, fsdp2"));
  EXPECT_THAT(outcome.error, HasSubstr("\n  hint: did you mean 'fsdp2'?"));
}

TEST(PluginsInspect, GivesAnErrorAsJsonToo) {
  const Outcome outcome = heddle({"plugins", "inspect", bad("other_torch"), "--json"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.out, HasSubstr(R"({"error": {"code": "plugin_abi")"));
}

TEST(PluginsCheck, PassesAGoodPlugin) {
  const Outcome outcome = heddle({"plugins", "check", bad("plain")});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("ok    the papers read: plain 1.2.3\n"));
  EXPECT_THAT(outcome.out, HasSubstr("ok    loaded twice in one registry is refused\n"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("FAIL")));
}

TEST(PluginsCheck, PassesEveryPluginOfTheBuild) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(HEDDLE_BINARY_DIR "/plugins")) {
    if (!entry.path().filename().string().starts_with("libheddle_"))
      continue;  // the hands of one are beside it
    const Outcome outcome = heddle({"plugins", "check", entry.path().string()});
    EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.error;
    ++count;
  }
  EXPECT_GE(count, 5);
}

TEST(PluginsCheck, SaysWhichRuleABadPluginBreaks) {
  const Outcome outcome = heddle({"plugins", "check", bad("empty_offer")});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.out,
              HasSubstr("FAIL  the whole offer is admitted: the plugin 'empty_offer' 0.1.0 breaks a rule "
                        "of the door: it offers nothing"));
  EXPECT_THAT(outcome.error,
              HasSubstr("error[plugin_failed] " + bad("empty_offer") + ": 1 of 3 checks of the door failed"));
}

TEST(PluginsCheck, RunsTheTablesOfASchedule) {
  const Outcome good = heddle({"plugins", "check", HEDDLE_BINARY_DIR "/tests/examples/libheddle_looped.so"});
  EXPECT_THAT(good.out, HasSubstr("ok    the schedule 'looped' plans tables that run: 105 tables\n"));
  const Outcome outcome = heddle({"plugins", "check", bad("drops")});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.out,
              HasSubstr("FAIL  the schedule 'drops' plans tables that run: rank 0, step 7: 0B3: it "
                        "is missing: the row ends without it\n"));
}

TEST(PluginsCheck, SurvivesAPluginThatEndsItsProcess) {
  const Outcome outcome = heddle({"plugins", "check", bad("static_throw")});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.out,
              HasSubstr("FAIL  the process lives on when it is opened: it ended (Aborted); throw nothing "
                        "from static initialisers"));
  EXPECT_THAT(outcome.error, HasSubstr("error[plugin_failed]"));
}

TEST(PluginsCheck, SaysThatAFileIsNotThere) {
  const Outcome outcome = heddle({"plugins", "check", "/no/such/libheddle_x.so"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error,
              HasSubstr("error[plugin_missing] /no/such/libheddle_x.so: there is no such plugin file"));
}

// The README of each plugin holds the table of its schema.
class PluginReadme : public ::testing::TestWithParam<std::string> {};

TEST_P(PluginReadme, HoldsTheTableOfTheSchema) {
  const Outcome outcome = heddle({"plugins", "inspect", GetParam(), "--markdown"});
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  std::ostringstream readme;
  readme << std::ifstream(HEDDLE_SOURCE_DIR "/plugins/" + GetParam() + "/README.md").rdbuf();
  EXPECT_NE(readme.str().find(outcome.out), std::string::npos)
      << "put the output of `heddle plugins inspect " << GetParam() << " --markdown` into its README:\n"
      << outcome.out;
}

std::vector<std::string> plugins_with_a_readme() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(HEDDLE_SOURCE_DIR "/plugins"))
    if (const std::string name = entry.path().filename().string();
        std::filesystem::exists(entry.path() / "README.md") &&
        std::filesystem::exists(HEDDLE_BINARY_DIR "/plugins/libheddle_" + name +
                                ".so"))  // some need a toolkit
      out.push_back(name);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Plugins, PluginReadme, ::testing::ValuesIn(plugins_with_a_readme()),
                         [](const auto& info) { return info.param; });

}  // namespace

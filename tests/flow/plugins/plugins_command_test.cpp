// `heddle plugins` as a program, on the gallery and on the plugins of the build.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "flow/program.h"
#include "tests/main/with_all.h"

namespace {

HEDDLE_WITH_ALL("Plugins/BuiltPlugin.*");

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
  EXPECT_THAT(outcome.out, HasSubstr("no_manifest  CANNOT BE LOADED\n"));
  EXPECT_THAT(outcome.out, HasSubstr("searched: " + kGallery + ", " HEDDLE_BINARY_DIR "/plugins"));
}

TEST(PluginsList, SearchesTheDirectoriesOfTheVariableToo) {
  const Outcome outcome = heddle({"plugins", "list", "--json"}, {"HEDDLE_PLUGIN_PATH=" + kGallery});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr(R"("plugin":"plain","version":"1.2.3","path":")" + bad("plain") + "\""));
  EXPECT_THAT(outcome.out,
              HasSubstr(R"({"kind":"strategy","name":"plain","aliases":["Simple","plain-old"]})"));
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

TEST(PluginsInspect, PrintsErrorsAsJson) {
  const Outcome outcome = heddle({"plugins", "inspect", bad("other_torch"), "--json"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.out, HasSubstr(R"({"error": {"code": "plugin_abi")"));
}

TEST(PluginsCheck, PassesAGoodPluginOnTheRequestedRanks) {
  const Outcome outcome = heddle({"plugins", "check", bad("zero1_none"), "--ranks", "2"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("ok    the manifest is readable: zero1_none 0.1.0\n"));
  EXPECT_THAT(outcome.out, HasSubstr("ok    the same file is refused a second time\n"));
  EXPECT_THAT(
      outcome.out,
      HasSubstr("ok    strategy 'zero1' on 2 ranks: owned(): a tied parameter once: loss differs by "));
  EXPECT_THAT(outcome.out, HasSubstr("--    strategy 'zero1' on 2 ranks: with replicas: the axis "
                                     "dp_replicate: not run: its mesh has no axis dp_replicate\n"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("FAIL")));
  EXPECT_THAT(outcome.out, Not(HasSubstr("on 3 ranks")));
}

TEST(PluginsCheck, PrintsOneObjectForAProgram) {
  const Outcome outcome = heddle({"plugins", "check", bad("zero1_averages"), "--ranks", "2", "--json"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.out,
              HasSubstr(R"("passed":false,"checks":[{"rule":"the manifest is readable","passed":true,)"));
  EXPECT_THAT(outcome.out,
              HasSubstr(R"({"rule":"strategy 'zero1' on 2 ranks: finish_gradients(): the sum over the )"
                        R"(data-parallel ranks and all microbatches of the step","passed":false,)"));
}

// Returns the plugins of the build, without the CUDA library of one of them, which is a separate file.
std::vector<std::string> built_plugins() {
  std::vector<std::string> names;
  const std::string prefix = "libheddle_";
  for (const auto& entry : std::filesystem::directory_iterator(HEDDLE_BINARY_DIR "/plugins"))
    if (const std::string name = entry.path().stem().string(); name.starts_with(prefix))
      names.push_back(name.substr(prefix.size()));
  std::sort(names.begin(), names.end());
  return names;
}

class BuiltPlugin : public ::testing::TestWithParam<std::string> {};

TEST_P(BuiltPlugin, PassesItsCheck) {
  flow::Words command{"plugins", "check", HEDDLE_BINARY_DIR "/plugins/libheddle_" + GetParam() + ".so",
                      "--ranks", "2",     "--time-limit",
                      "900"};
  // A key without a possible default.
  if (GetParam() == "nemotron_nas")
    command.insert(
        command.end(),
        {"--fields",
         "{num_hidden_layers: 2, block_configs: [{attention: {n_heads_in_group: 2}, ffn: {ffn_mult: "
         "1.5}}, {attention: {}, ffn: {ffn_mult: 0.75}}]}"});
  const Outcome outcome = heddle(command);
  // A set of texts is checked with its texts: tests/flow/data/texts_test.cpp. te_fp8 trains wider models:
  // tests/plugins/fp8.
  const auto says = [&](const char* text) { return outcome.out.find(text) != std::string::npos; };
  const bool lacks = says("not run: the device is not available here") ||
                     says("not run: it refuses these fields: ") ||
                     says("not run: it refuses the small model: the model has no linear layer");
  EXPECT_EQ(outcome.status, lacks ? 3 : 0) << outcome.out << outcome.error;
}

INSTANTIATE_TEST_SUITE_P(Plugins, BuiltPlugin, ::testing::ValuesIn(built_plugins()),
                         [](const auto& info) { return info.param; });

TEST(PluginsCheck, NamesTheRuleThatABadPluginBreaks) {
  const Outcome outcome = heddle({"plugins", "check", bad("empty_offer")});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.out, HasSubstr("FAIL  the registry accepts all that the plugin offers: invalid plugin "
                                     "'empty_offer' 0.1.0: it offers nothing"));
  EXPECT_THAT(outcome.error,
              HasSubstr("error[plugin_failed] " + bad("empty_offer") + ": 1 of 3 checks failed"));
}

TEST(PluginsCheck, RunsTheTablesOfASchedule) {
  const Outcome good = heddle({"plugins", "check", HEDDLE_BINARY_DIR "/tests/examples/libheddle_looped.so"});
  const std::string rule = "schedule 'looped': plan(): a pure function from sizes to an order of work: ";
  EXPECT_THAT(good.out, HasSubstr("ok    " + rule + "2048 tables\n"));
  EXPECT_THAT(
      good.out,
      HasSubstr("ok    schedule 'looped' on 3 ranks: core adds transfers and runs it: loss differs by "));
  const Outcome outcome = heddle({"plugins", "check", bad("drops")});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(
      outcome.out,
      HasSubstr("FAIL  schedule 'drops': plan(): a pure function from sizes to an order of work: 1 rank, "
                "1 stage and 4 microbatches: rank 0, step 7: 0B3: it is missing: the row ends without it\n"));
}

TEST(PluginsCheck, SurvivesAPluginThatEndsItsProcess) {
  const Outcome outcome = heddle({"plugins", "check", bad("static_throw")});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(
      outcome.out,
      HasSubstr("FAIL  the registry accepts all that the plugin offers: the process ended (Aborted); do "
                "not throw from static initializers"));
  EXPECT_THAT(outcome.error, HasSubstr("error[plugin_failed]"));
}

// An exit with status 0 inside a kit must not end the check.
TEST(PluginsCheck, RefusesAPluginThatEndsItsProcessWithStatus0) {
  const Outcome outcome = heddle({"plugins", "check", bad("zero1_exits_in_finish"), "--ranks", "2"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.out, HasSubstr("FAIL  strategy 'zero1' on 2 ranks: "));
  EXPECT_THAT(outcome.out, HasSubstr("the process ended (exit with status 0)"));
}

// A file with only `plugins: [...]`, which is not a complete run.
struct RunWithPlugins {
  explicit RunWithPlugins(const std::string& plugins)
      : path(std::filesystem::path(::testing::TempDir()) / "heddle_run_with_plugins.yaml") {
    std::ofstream(path) << "optimizer: {lr: fast}\nplugins: [" << plugins << "]\n";
  }
  ~RunWithPlugins() { std::filesystem::remove(path); }
  std::filesystem::path path;
};

TEST(PluginsInspect, KnowsThePluginsOfARun) {
  EXPECT_EQ(heddle({"plugins", "inspect", "plain-old"}).status, 2);
  const RunWithPlugins run(bad("plain"));
  for (const std::string name : {"plain", "plain-old", "Simple"}) {
    const Outcome outcome = heddle({"plugins", "inspect", name, "--config", run.path.string()});
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_THAT(outcome.out, HasSubstr("plain"));
  }
}

TEST(PluginsOfARun, AreOpenedByEveryCommandThatReadsAModel) {
  const RunWithPlugins run("/nowhere/libheddle_none.so");
  const std::string model = HEDDLE_SOURCE_DIR "/tests/golden/llama";
  const std::string out = (std::filesystem::path(::testing::TempDir()) / "heddle_not_made").string();
  for (const flow::Words& words :
       {flow::Words{"generate", model, "--tokens", "1", "--max-new-tokens", "1"},
        flow::Words{"convert", model, out}, flow::Words{"plugins", "inspect", "single"}}) {
    const Outcome outcome = heddle(flow::plus(words, {"--config", run.path.string()}));
    EXPECT_EQ(outcome.status, 2) << words.front();
    EXPECT_THAT(outcome.error, HasSubstr("/nowhere/libheddle_none.so"));
    EXPECT_FALSE(std::filesystem::exists(out));
  }
}

}  // namespace

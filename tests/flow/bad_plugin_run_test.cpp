// A run whose configuration names a missing or faulty plugin ends with status 2 before anything starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>

#include "training_files.h"

namespace {

using flow::heddle;
using flow::Outcome;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kBadPlugins = HEDDLE_BINARY_DIR "/tests/bad_plugins";

// A configuration in its own folder, deleted after the test.
class Configuration {
 public:
  explicit Configuration(const std::string& text) {
    std::string name = (std::filesystem::temp_directory_path() / "heddle_run_XXXXXX").string();
    folder_ = mkdtemp(name.data());
    std::ofstream(file()) << text;
  }
  ~Configuration() { std::filesystem::remove_all(folder_); }
  Configuration(const Configuration&) = delete;
  Configuration& operator=(const Configuration&) = delete;
  std::string file() const { return folder_ / "run.yaml"; }

 private:
  std::filesystem::path folder_;
};

std::string naming(const std::string& plugin) {
  return "model: {config: {model_type: llama}}\ndistributed: {strategy: " + plugin + "}\nplugins: [" +
         kBadPlugins + "/libheddle_" + plugin + ".so]\n";
}

TEST(RunWithABadPlugin, NamesBothTagsWhenBuiltForAnotherLibTorch) {
  const Configuration run(naming("other_torch"));
  const Outcome outcome = heddle({"train", run.file()});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error,
              HasSubstr("error[plugin_abi] " + kBadPlugins +
                        "/libheddle_other_torch.so: the plugin 'other_torch' 0.1.0 "
                        "was built for another engine: torch is 2.10.0 there and 2.11.0 here"));
  EXPECT_THAT(outcome.error, HasSubstr("hint: build it again against this engine's SDK"));
}

TEST(RunWithABadPlugin, NamesThePluginThatThrows) {
  const Configuration run(naming("throws"));
  const Outcome outcome = heddle({"train", run.file()});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error, HasSubstr("error[plugin_failed] " + kBadPlugins +
                                       "/libheddle_throws.so: the plugin 'throws' "
                                       "0.1.0 threw while it made its offer: the licence server is away"));
}

TEST(RunWithAPlugin, FindsItByAnAliasBesideTheEngineAfterMissingDirectories) {
  const Configuration run("distributed: {strategy: MFSDP}\n");
  const Outcome outcome =
      heddle({"check", run.file(), "--world-size", "2"}, {"HEDDLE_PLUGIN_PATH=/no/such/place"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("strategy: megatron_fsdp"));
  for (const std::string& error :
       {outcome.error, heddle({"plugins", "list"}, {"HEDDLE_PLUGIN_PATH=/no/such/place"}).error})
    EXPECT_EQ(
        error,
        "[rank 0] [plugins] warning: HEDDLE_PLUGIN_PATH names /no/such/place, which is not a directory\n");
}

// The plugin exits with status 0, so a run might be taken for a complete one.
TEST(RunWithABadPlugin, NamesThePluginThatEndsTheProcess) {
  const flow::TrainingFiles files;
  const std::string file = kBadPlugins + "/libheddle_faulty_optimizer.so";
  const flow::Words own = {"--plugins",
                           "[" + file + "]",
                           "--optimizer",
                           "{_target_: faulty, lr: 0.01}",
                           "--step_scheduler.max_steps",
                           "2"};
  for (const char* ranks : {"1", "2"}) {
    flow::Words words = own;
    words.insert(words.end(), {"--nproc-per-node", ranks});
    const Outcome whole = heddle(files.train(std::string("whole") + ranks, words));
    EXPECT_EQ(whole.status, 0) << whole.error;
    EXPECT_THAT(whole.error, Not(HasSubstr("exit()")));
    words.push_back("--json");
    const Outcome cut = heddle(files.train(std::string("cut") + ranks, words), {"HEDDLE_FAULT=exits"});
    EXPECT_EQ(cut.status, 1) << cut.error;
    EXPECT_THAT(cut.error, HasSubstr("error[internal] " + file +
                                     ": exit() was called before the command was finished\n"));
    EXPECT_THAT(cut.out, HasSubstr(R"({"error": {"code": "internal", "where": ")" + file + "\""));
  }
}

// Without it, AddressSanitizer reports a crash before heddle does.
const char* const kSanitizerKeepsOut = "ASAN_OPTIONS=detect_leaks=0:detect_odr_violation=0:handle_segv=0";

TEST(RunWithABadPlugin, ReportsWhereItCrashedOrExited) {
  const flow::TrainingFiles files;
  const std::string file = kBadPlugins + "/libheddle_faulty_optimizer.so";
  for (const char* ranks : {"1", "2"}) {
    const flow::Words words = {"--plugins",        "[" + file + "]",
                               "--optimizer",      "{_target_: faulty, lr: 0.01}",
                               "--nproc-per-node", ranks};
    const Outcome crashed = heddle(files.train(std::string("crash") + ranks, words),
                                   {"HEDDLE_FAULT=crashes", kSanitizerKeepsOut});
    EXPECT_EQ(crashed.status, std::string(ranks) == "1" ? 128 + SIGSEGV : 1) << crashed.error;
    EXPECT_THAT(crashed.error, HasSubstr("error[internal] " + file + ": crashed (SIGSEGV) on rank "));
    EXPECT_THAT(crashed.error, HasSubstr("; in the plugin 'faulty_optimizer': ran update()"));
    EXPECT_THAT(crashed.error, HasSubstr("\n  hint: addr2line -Cfie " + file + " 0x"));
  }
  const Outcome aborted = heddle(
      files.train("abort", {"--plugins", "[" + file + "]", "--optimizer", "{_target_: faulty, lr: 0.01}"}),
      {"HEDDLE_FAULT=aborts"});
  EXPECT_EQ(aborted.status, 128 + SIGABRT) << aborted.error;
  EXPECT_THAT(aborted.error, HasSubstr("error[internal] " + file + ": crashed (SIGABRT) on rank 0, at 0x"));
  EXPECT_THAT(aborted.error, HasSubstr("; in the plugin 'faulty_optimizer': ran update()"));
  const Outcome left = heddle(files.train("left", {"--plugins", "[" + file + "]", "--optimizer",
                                                   "{_target_: faulty, lr: 0.01}", "--nproc-per-node", "2"}),
                              {"HEDDLE_FAULT=leaves"});
  EXPECT_EQ(left.status, 1);
  EXPECT_THAT(left.error, HasSubstr(" exited with status 0 before its work was done"));
}

// A plugin's model whose layers shift tokens, so each new token is computed from the whole text.
TEST(RunOfAFaultyModel, ComputesTheWholeTextForAModelThatMixesTokensItself) {
  const flow::TrainingFiles files;
  const flow::Words mixes = {"HEDDLE_FAULT=says_that_it_mixes"};
  files.write("plugins.yaml", "plugins: [" + kBadPlugins + "/libheddle_faulty_model.so]\n");
  const Outcome trained =
      heddle(files.train("shifts", {"--plugins", "[" + kBadPlugins + "/libheddle_faulty_model.so]", "--model",
                                    "{config: {model_type: faulty, vocab_size: 256, max_positions: 64}}",
                                    "--step_scheduler.max_steps", "2"}),
             mixes);
  ASSERT_EQ(trained.status, 0) << trained.error;
  const auto generated = [&](const std::string& tokens, const char* count) {
    return heddle({"generate", files.path("shifts"), "--config", files.path("plugins.yaml"), "--tokens",
                   tokens, "--max-new-tokens", count, "--temperature", "0"},
                  mixes);
  };
  // Code that a checkpoint names is not loaded without a request.
  for (const flow::Words& words : {flow::Words{"generate", files.path("shifts"), "--tokens", "5"},
                                   flow::Words{"convert", files.path("shifts"), files.path("converted")}}) {
    const Outcome unasked = heddle(words, mixes);
    EXPECT_EQ(unasked.status, 2);
    EXPECT_THAT(unasked.error, HasSubstr("model_type 'faulty' is not built; available: "));
    EXPECT_THAT(unasked.error, HasSubstr("hint: the run that saved it had plugins: " + kBadPlugins +
                                         "/libheddle_faulty_model.so, and heddle does not load code that a "
                                         "saved file names without being asked: "
                                         "--config RUN.yaml opens the plugins that the run's file names; "
                                         "HEDDLE_PLUGIN_PATH=DIR sets their directory\n"));
  }
  const Outcome converted = heddle(
      {"convert", files.path("shifts"), files.path("converted"), "--config", files.path("plugins.yaml")},
      mixes);
  EXPECT_EQ(converted.status, 0) << converted.error;
  const Outcome at_once = generated("5,6,7", "6");
  EXPECT_EQ(
      at_once.error,
      "warning: no KV cache, so each new token recomputes the whole text: 'layers.0' (decoder_layer) mixes "
      "tokens outside of attention and mixers\n");
  std::string one_by_one = "5,6,7";
  for (int i = 0; i < 6; ++i) {
    const std::string next = generated(one_by_one, "1").out;
    one_by_one = next.substr(0, next.find('\n'));
  }
  EXPECT_EQ(at_once.out, one_by_one + "\n");
}

TEST(TokensToContinue, AreWholeNumbersOfWhichNoneIsEmpty) {
  const auto said = [](const std::string& tokens) {
    return heddle({"generate", "/nowhere", "--tokens", tokens}).error;
  };
  for (const std::string tokens : {"", "1,,2", "1,2,", ",1"})
    EXPECT_THAT(said(tokens), HasSubstr("--tokens: expected whole numbers separated by commas, got '" +
                                        tokens + "', which contains an empty id"));
  EXPECT_THAT(said("1,two"),
              HasSubstr("--tokens: expected whole numbers separated by commas, got '1,two'\n"));
}

}  // namespace

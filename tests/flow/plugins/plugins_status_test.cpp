// Status and last line of `heddle plugins check`: untrained offers, failed checks, and invalid requests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "flow/program.h"

namespace {

using flow::heddle;
using flow::Outcome;
using ::testing::HasSubstr;

std::string broken(const std::string& name) {
  return HEDDLE_BINARY_DIR "/tests/bad_plugins/libheddle_" + name + ".so";
}

// read() ignores the key, as in a config.json.
TEST(PluginsCheck, RefusesAMisspeltKeyOfAModel) {
  const Outcome outcome =
      heddle({"plugins", "check", broken("faulty_model"), "--fields", "{hiden_size: 12}"});
  EXPECT_EQ(outcome.status, 2) << outcome.out;
  EXPECT_EQ(outcome.error,
            "error[config] --fields: unknown key 'hiden_size': no offer of this file has this field\n"
            "  hint: did you mean hidden_size?\n");
  const Outcome none = heddle({"plugins", "check", broken("drops"), "--fields", "{a: 1}"});
  EXPECT_EQ(none.status, 2) << none.out;
  EXPECT_THAT(none.error, HasSubstr("error[config] --fields: no offer of this file is checked with "));
}

// One rank splits nothing.
TEST(PluginsCheck, NamesEachUntrainedOffer) {
  const auto expect_untrained = [](const std::string& file, const std::string& offer) {
    const Outcome outcome = heddle({"plugins", "check", file, "--ranks", "1"});
    EXPECT_EQ(outcome.status, 3) << outcome.out << outcome.error;
    EXPECT_THAT(outcome.out, HasSubstr("--    " + offer +
                                       ": is trained: not run: its kits need at least 2 ranks, but "
                                       "--ranks has only 1\n"));
    EXPECT_THAT(outcome.out, HasSubstr("checks passed, but no kit trained with " + offer + ": every kit"));
  };
  expect_untrained(HEDDLE_BINARY_DIR "/plugins/libheddle_tensor.so", "parallelizer 'tensor'");
  expect_untrained(HEDDLE_BINARY_DIR "/plugins/libheddle_moe.so", "parallelizer 'moe'");
  expect_untrained(HEDDLE_BINARY_DIR "/tests/examples/libheddle_looped.so", "schedule 'looped'");
  expect_untrained(HEDDLE_BINARY_DIR "/tests/examples/libheddle_acme.so", "parallelizer 'acme'");
  const Outcome json = heddle(
      {"plugins", "check", HEDDLE_BINARY_DIR "/tests/examples/libheddle_acme.so", "--ranks", "1", "--json"});
  EXPECT_EQ(json.status, 3);
  EXPECT_THAT(json.out, HasSubstr(R"("trained":false,"untrained":["parallelizer 'acme'"]})"));
}

TEST(PluginsCheck, CountsTheChecksThatRanInBothPlaces) {
  const Outcome outcome = heddle({"plugins", "check", broken("zero1_averages"), "--ranks", "2"});
  EXPECT_EQ(outcome.status, 2);
  const size_t line = outcome.out.rfind('\n', outcome.out.size() - 2) + 1;
  const std::string verdict = outcome.out.substr(line, outcome.out.size() - line - 1);
  EXPECT_THAT(outcome.out, HasSubstr("--    "));
  EXPECT_THAT(outcome.error, HasSubstr(": " + verdict + "\n")) << outcome.out;
}

TEST(PluginsCheck, ReportsThatNothingWasTrainedByASeparateStatus) {
  const Outcome outcome =
      heddle({"plugins", "check", broken("faulty_model"), "--fields", "{hidden_size: 13}"});
  EXPECT_EQ(outcome.status, 3) << outcome.out << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("not run: its default keys are refused; set other keys with --fields: "
                                     "hidden_size is no multiple of 4\n"));
  EXPECT_TRUE(
      outcome.out.ends_with("checks passed, but no kit trained with model 'faulty': every kit that uses it "
                            "was skipped for the reasons above, so its correctness is unknown\n"))
      << outcome.out;
}

}  // namespace

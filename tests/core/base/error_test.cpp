// Printed form of errors for people and scripts, and small text functions.
#include "heddle/base/error.h"

#include <gtest/gtest.h>

#include "heddle/base/log.h"
#include "heddle/base/text.h"

namespace heddle {
namespace {

TEST(Error, PrintsOneBlockWithItsHint) {
  EXPECT_STREQ(Error(ErrorCode::config, "run.yaml:3 seed", "expected an integer, got 'x'").what(),
               "error[config] run.yaml:3 seed: expected an integer, got 'x'");
  EXPECT_STREQ(Error(ErrorCode::mesh, "w", "what", "do this").what(), "error[mesh] w: what\n  hint: do this");
}

TEST(Error, ShortensAnInvalidPath) {
  const std::string page(500'000, 'x');
  EXPECT_STREQ(Error(ErrorCode::input, page, "is not there").what(),
               ("error[input] " + std::string(200, 'x') + "... (500000 bytes): is not there").c_str());
  EXPECT_LT(std::string(Error(ErrorCode::input, page, page, page).what()).size(), 140'000u);
}

TEST(Error, PrintsOneLineOfJson) {
  EXPECT_EQ(Error(ErrorCode::plugin_abi, "a\"b", "line\nline", "").json(),
            R"({"error": {"code": "plugin_abi", "where": "a\"b", "what": "line\nline", "hint": ""}})");
}

TEST(Error, HasStatusTwoForBadInputAndOneForAFailedRun) {
  for (const ErrorCode code : {ErrorCode::usage, ErrorCode::config, ErrorCode::input, ErrorCode::not_built,
                               ErrorCode::mesh, ErrorCode::plugin_missing, ErrorCode::plugin_abi,
                               ErrorCode::plugin_conflict, ErrorCode::plugin_failed})
    EXPECT_EQ(exit_status(code), 2) << name_of(code);
  for (const ErrorCode code :
       {ErrorCode::rank_lost, ErrorCode::timeout, ErrorCode::io, ErrorCode::internal, ErrorCode::diverged})
    EXPECT_EQ(exit_status(code), 1) << name_of(code);
}

TEST(Text, SuggestsTheNearestWord) {
  const std::vector<std::string> words = {"tp_size", "pp_size", "pipeline"};
  EXPECT_EQ(text::nearest("tp_sze", words), "tp_size");
  EXPECT_EQ(text::nearest("PIPELIN", words), "pipeline");
  EXPECT_EQ(text::nearest("optimizer", words), "");
}

TEST(Text, ShortensAnExcerptToOneLine) {
  EXPECT_EQ(text::excerpt("a\nb\tc\r\x1b[31m\x7f"), "a\\nb\\tc\\r\\x1b[31m\\x7f");
  EXPECT_EQ(text::excerpt(std::string(200, 'a')), std::string(200, 'a'));
  EXPECT_EQ(text::excerpt(std::string(201, 'a')), std::string(200, 'a') + "... (201 bytes)");
  EXPECT_EQ(text::excerpt("ab\u00e9cd", 3), "ab... (6 bytes)");  // no partial character
  EXPECT_EQ(text::excerpt(std::string(9, '\x80'), 3), "... (9 bytes)");
}

TEST(Text, EscapesInvalidBytesInJson) {
  EXPECT_EQ(text::quoted("a\"\\\n\x01"), "\"a\\\"\\\\\\n\\u0001\"");
  EXPECT_EQ(text::quoted("\xff"), "\"\xef\xbf\xbd\"");
}

TEST(Text, JoinsAndLowers) {
  const std::vector<std::string> words = {"a", "b"};
  EXPECT_EQ(text::join(words), "a, b");
  EXPECT_EQ(text::join(words, " or "), "a or b");
  EXPECT_EQ(text::lower("FsX-1"), "fsx-1");
}

TEST(Log, PassesLinesToItsSinkOrDropsThem) {
  std::string seen;
  const Log log([&](LogLevel level, std::string_view room, std::string_view line) {
    seen += std::to_string(static_cast<int>(level)) + std::string(room) + ":" + std::string(line) + ";";
  });
  log.debug("a", "1");
  log.info("a", "2");
  log.warning("b", "3");
  log.error("b", "4");
  Log().error("c", "5");
  EXPECT_EQ(seen, "0a:1;1a:2;2b:3;3b:4;");
}

}  // namespace
}  // namespace heddle

// Errors of independent checks: their order, their number, and their printed form.
#include "heddle/base/error.h"

#include <gtest/gtest.h>

#include "tests/thrown.h"

namespace heddle {
namespace {

Error at(const std::string& where, const std::string& what = "wrong") {
  return {ErrorCode::config, where, what};
}

std::string raised(const Errors& errors) {
  return tests::thrown_by([&] { errors.raise(); });
}

TEST(ErrorList, IsInFileOrderWithoutDuplicates) {
  Errors errors;
  errors.add(at("run.yaml:9 b"));
  errors.add(at("models/x"));
  errors.add(at("run.yaml:10 c"));
  errors.add(at("run.yaml:2 a"));
  errors.add(at("other.yaml:1 z"));
  errors.add(at("run.yaml:9 b"));
  EXPECT_EQ(raised(errors),
            "error[config] run.yaml:2 a: wrong\nerror[config] run.yaml:9 b: wrong\n"
            "error[config] run.yaml:10 c: wrong\nerror[config] models/x: wrong\n"
            "error[config] other.yaml:1 z: wrong");
}

TEST(ErrorList, EqualsItsOnlyError) {
  Errors errors;
  errors.raise();
  EXPECT_TRUE(errors.attempt([] {}));
  EXPECT_FALSE(errors.attempt([] { throw Error(ErrorCode::input, "a.bin", "is empty", "fill it"); }));
  try {
    errors.raise();
    FAIL();
  } catch (const ErrorList&) {
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(to_json(error), error.json());
  }
}

TEST(ErrorList, CanBeAddedToAnother) {
  Errors inner, outer;
  inner.add(at("run.yaml:5 b"));
  inner.add(at("run.yaml:6 c"));
  outer.add(at("run.yaml:6 c"));
  EXPECT_FALSE(outer.attempt([&] { inner.raise(); }));
  EXPECT_EQ(raised(outer), "error[config] run.yaml:5 b: wrong\nerror[config] run.yaml:6 c: wrong");
}

TEST(ErrorList, IsLimitedToTwenty) {
  Errors errors;
  for (int line = 30; line > 0; --line) errors.add(at("run.yaml:" + std::to_string(line) + " k"));
  try {
    errors.raise();
    FAIL();
  } catch (const ErrorList& list) {
    EXPECT_EQ(list.all().size(), 20u);
    EXPECT_EQ(list.all().back().where(), "run.yaml:20 k");
  }
}

TEST(ErrorList, HasStatusTwoIfAnyErrorHas) {
  Errors errors;
  errors.add(Error(ErrorCode::io, "run.yaml:1 a", "full"));
  errors.add(at("run.yaml:2 b"));
  try {
    errors.raise();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(exit_status(error.code()), 2);
    EXPECT_EQ(error.where(), "run.yaml:2 b");
  }
}

TEST(ErrorList, PrintsTheFirstAndAllAsJson) {
  Errors errors;
  errors.add(at("run.yaml:2 b", "two"));
  errors.add(at("run.yaml:1 a", "one"));
  const std::string one = R"({"code": "config", "where": "run.yaml:1 a", "what": "one", "hint": ""})";
  const std::string two = R"({"code": "config", "where": "run.yaml:2 b", "what": "two", "hint": ""})";
  try {
    errors.raise();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(to_json(error), "{\"error\": " + one + ", \"errors\": [" + one + ", " + two + "]}");
  }
}

}  // namespace
}  // namespace heddle

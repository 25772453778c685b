// Line numbers of errors at the path of a key.
#include "lib/run/preflight/throw_at_key.h"

#include <gtest/gtest.h>

#include "tests/thrown.h"

namespace heddle {
namespace {

std::string placed(const std::string& where) {
  const Node file =
      config::read_text("a: 1\ndistributed:\n  cp_size: 2\n  moe:\n    capacity_factor: 3\n", "run.yaml");
  return tests::thrown_by(
      [&] { at_keys(file, [&] { throw Error(ErrorCode::mesh, where, "wrong", "mend it"); }); });
}

TEST(ThrowAtKey, NamesTheLineOfTheKey) {
  EXPECT_EQ(placed("distributed.cp_size"),
            "error[mesh] run.yaml:3 distributed.cp_size: wrong\n  hint: mend it");
  EXPECT_EQ(placed("distributed.moe.capacity_factor"),
            "error[mesh] run.yaml:5 distributed.moe.capacity_factor: wrong\n  hint: mend it");
  EXPECT_EQ(placed("distributed.tp_plan"), "error[mesh] distributed.tp_plan: wrong\n  hint: mend it");
  EXPECT_EQ(placed("run.yaml:9 distributed.cp_size"),
            "error[mesh] run.yaml:9 distributed.cp_size: wrong\n  hint: mend it");
  EXPECT_EQ(placed("the strategy 'x'"), "error[mesh] the strategy 'x': wrong\n  hint: mend it");
}

TEST(ThrowAtKey, NamesThePlaceOfEachOfSeveralErrors) {
  const Node file = config::read_text("distributed:\n  cp_size: 2\n  tp_size: 4\n", "run.yaml");
  Errors errors;
  errors.add(Error(ErrorCode::config, "distributed.tp_size", "large"));
  errors.add(Error(ErrorCode::config, "distributed.cp_size", "small"));
  EXPECT_EQ(tests::thrown_by([&] { at_keys(file, [&] { errors.raise(); }); }),
            "error[config] run.yaml:2 distributed.cp_size: small\n"
            "error[config] run.yaml:3 distributed.tp_size: large");
}

}  // namespace
}  // namespace heddle

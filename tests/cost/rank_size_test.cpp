// Host memory that ranks need, compared with the machine's memory.
#include "lib/cost/rank_size.h"

#include <gmock/gmock.h>

#include <limits>

#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

TEST(CheckMemory, RefusesWhatTheMachineCannotHold) {
  RankSizes sizes;
  sizes.most.held = sizes.most.gradients = int64_t{4} << 30;
  sizes.most.optimizer = int64_t{8} << 30;
  sizes.average = 12.0 * (1 << 30);
  const double memory = 20.0 * (1 << 30);
  const auto refusal = [&](int ranks) {
    return tests::thrown_by([&] { check_memory(sizes, "run.yaml:3 model", ranks, memory); });
  };
  EXPECT_EQ(refusal(1), "");
  EXPECT_EQ(
      refusal(2),
      "error[config] run.yaml:3 model: parameters, gradients and the optimizer of 2 ranks on this "
      "machine take 24.00 GiB, but the machine has 20.00 GiB\n"
      "  hint: use more machines, a smaller model, or model.dtype: bfloat16; --model.check_memory false "
      "starts the run anyway");
  sizes.most.held = sizes.most.optimizer = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(refusal(1), HasSubstr("the optimizer of a rank take 16.00 EiB, but the machine has 20.00 GiB"));
}

}  // namespace
}  // namespace heddle

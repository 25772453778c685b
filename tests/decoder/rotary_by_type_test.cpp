// rope_parameters per layer type (sliding or full attention), as transformers writes them.
#include <gmock/gmock.h>

#include <string>

#include "heddle/decoder/family.h"
#include "tests/thrown.h"

namespace heddle::decoder {
namespace {

using ::testing::HasSubstr;

struct ReadRotary {
  RotaryKeys full, sliding;
  explicit ReadRotary(const std::string& parameters) {
    read_rotary_by_type(config::read_text("{rope_parameters: " + parameters + "}", "config.json"), full,
                        sliding, {.model_type = "gemma3_text", .head_dim = 8, .max_positions = 64});
  }
};

const std::string kMaps =
    "full_attention: {rope_type: default, rope_theta: 7.0}, sliding_attention: {rope_type: default, "
    "rope_theta: "
    "3.0}";

TEST(RotaryByType, TakesTheKeysThatTransformersWritesBesideTheMaps) {
  for (const char* more : {"", ", rope_theta: null", ", rope_theta: null, rope_type: default"}) {
    const ReadRotary read("{" + kMaps + more + "}");
    EXPECT_EQ(read.full.theta, 7.0) << more;
    EXPECT_EQ(read.sliding.theta, 3.0) << more;
  }
}

TEST(RotaryByType, RefusesKeysThatSaySomethingBesideTheMaps) {
  for (const std::string more : {"rope_theta: 5.0", "rope_type: linear", "factor: 2.0"})
    EXPECT_THAT(tests::thrown_by([&] { ReadRotary("{" + kMaps + ", " + more + "}"); }),
                HasSubstr("expected a map for full_attention and one for sliding_attention, got the key " +
                          more.substr(0, more.find(':'))));
}

}  // namespace
}  // namespace heddle::decoder

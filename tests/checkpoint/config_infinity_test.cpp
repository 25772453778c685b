// Infinity in a config.json, as Python's json and as transformers write it.
#include <gtest/gtest.h>

#include <cmath>

#include "heddle/base/error.h"
#include "lib/checkpoint/huggingface/read_config.h"

namespace heddle {
namespace {

TEST(ConfigJson, ReadsInfinityInBothSpellings) {
  const Node keys = checkpoint::parse_config_json(
      R"({"limit": [0.0, Infinity], "other": {"__float__": "Infinity"}, "text": "a \"Infinity\" b"})",
      "config.json");
  EXPECT_TRUE(std::isinf(keys.find("limit")->items()[1].as_real()));
  EXPECT_TRUE(std::isinf(keys.find("other")->as_real()));
  EXPECT_EQ(keys.find("text")->as_text(), "a \"Infinity\" b");
}

TEST(ConfigJson, RefusesOtherWords) {
  EXPECT_THROW(checkpoint::parse_config_json(R"({"limit": Infinity2})", "config.json"), Error);
  EXPECT_THROW(checkpoint::parse_config_json(R"({"limit": NaN})", "config.json"), Error);
}

}  // namespace
}  // namespace heddle

// Sizes in messages.
#include "heddle/base/text.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(BytesText, PicksASuitableUnit) {
  EXPECT_EQ(bytes_text(int64_t{0}), "0 B");
  EXPECT_EQ(bytes_text(int64_t{1023}), "1023 B");
  EXPECT_EQ(bytes_text(int64_t{1536}), "1.50 KiB");
  EXPECT_EQ(bytes_text(int64_t{5} << 20), "5.00 MiB");
  EXPECT_EQ(bytes_text(int64_t{5} << 30), "5.00 GiB");
  EXPECT_EQ(bytes_text(int64_t{5} << 40), "5.00 TiB");
  EXPECT_EQ(bytes_text(int64_t{5} << 50), "5.00 PiB");
  EXPECT_EQ(bytes_text(int64_t{5} << 60), "5.00 EiB");
  EXPECT_EQ(bytes_text(1e22), "8673.62 EiB");
}

}  // namespace
}  // namespace heddle

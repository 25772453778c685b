// Environment variables that select CPU kernels.
#include "core/base/cpu_settings.h"

#include <gmock/gmock.h>

#include "heddle/base/error.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;
using tests::thrown_by;

TEST(CpuCapability, IsTheProcessorsUnlessAValueNamesANarrowerOne) {
  for (const char* const none : {static_cast<const char*>(nullptr), ""})
    EXPECT_EQ(parse_cpu_capability(none, CpuCapability::avx2), CpuCapability::avx2);
  EXPECT_EQ(parse_cpu_capability("default", CpuCapability::avx512), CpuCapability::baseline);
  EXPECT_EQ(parse_cpu_capability("avx2", CpuCapability::avx512), CpuCapability::avx2);
  EXPECT_EQ(parse_cpu_capability("avx512", CpuCapability::avx512), CpuCapability::avx512);
}

TEST(CpuCapability, RefusesOtherValuesAndInstructionsThatTheProcessorLacks) {
  EXPECT_THAT(
      thrown_by([] { parse_cpu_capability("AVX2", CpuCapability::avx512); }),
      HasSubstr("HEDDLE_CPU_CAPABILITY: it is 'AVX2', but must be default, avx2 or avx512\n  hint: set "
                "it to default, avx2 or avx512, or unset it"));
  EXPECT_THAT(
      thrown_by([] { parse_cpu_capability("avx512", CpuCapability::avx2); }),
      HasSubstr("HEDDLE_CPU_CAPABILITY: it is avx512, but the widest instruction set of this processor "
                "is avx2\n  hint: set it to default or avx2, or unset it"));
}

TEST(PackedProductSetting, IsEmptyZeroOrOne) {
  EXPECT_EQ(parse_packed_product(nullptr), std::nullopt);
  EXPECT_EQ(parse_packed_product(""), std::nullopt);
  EXPECT_EQ(parse_packed_product("1"), true);
  EXPECT_EQ(parse_packed_product("0"), false);
  EXPECT_THAT(
      thrown_by([] { parse_packed_product("on"); }),
      HasSubstr("HEDDLE_PACKED_PRODUCT: it is 'on', but must be 0 or 1\n  hint: set it to 1 to compute "
                "every float32 product on the CPU with heddle's kernel, to 0 to compute all of them "
                "with LibTorch, or unset it"));
}

}  // namespace
}  // namespace heddle

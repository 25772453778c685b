// The environment variables that choose among heddle's CPU kernels.
#pragma once

#include <optional>

#include "heddle/base/export.h"

namespace heddle {

enum class CpuCapability { baseline, avx2, avx512 };

// The widest instruction set that heddle's own kernels use: the processor's, or a narrower one that
// HEDDLE_CPU_CAPABILITY names (default, avx2 or avx512, as in ATEN_CPU_CAPABILITY). Read once. Throws Error
// for another value, and for an instruction set that the processor lacks.
HEDDLE_API CpuCapability cpu_capability();

// HEDDLE_PACKED_PRODUCT: true for 1, false for 0, empty where it is not set. Read once. Throws Error for
// another value.
HEDDLE_API std::optional<bool> packed_product_setting();

// The widest instruction set of the processor.
HEDDLE_API CpuCapability processor_capability();

// Parse values of the two variables; null or "" where a variable is not set.
HEDDLE_API CpuCapability parse_cpu_capability(const char* value, CpuCapability of_processor);
HEDDLE_API std::optional<bool> parse_packed_product(const char* value);

}  // namespace heddle

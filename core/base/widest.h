// Loops compiled for several generations of x86-64, one of which runs.
#pragma once

#include "core/base/cpu_settings.h"

#define HEDDLE_INLINE inline __attribute__((always_inline))

// Functions of an instruction set. They call HEDDLE_INLINE functions, which are compiled for the same set.
#if defined(__x86_64__) && defined(__GNUC__)
#define HEDDLE_AVX2 __attribute__((target("arch=x86-64-v3")))
#define HEDDLE_AVX512 __attribute__((target("arch=x86-64-v4")))
#endif

namespace heddle {

#ifdef HEDDLE_AVX512
template <auto function, class... Arguments>
HEDDLE_AVX2 auto run_avx2(Arguments... arguments) {
  return function(arguments...);
}
template <auto function, class... Arguments>
HEDDLE_AVX512 auto run_avx512(Arguments... arguments) {
  return function(arguments...);
}
#endif

// Calls a HEDDLE_INLINE function, compiled for cpu_capability(). From AVX2 on, products and sums are fused
// unless the source is compiled with -ffp-contract=off.
template <auto function, class... Arguments>
auto run_widest(Arguments... arguments) {
#ifdef HEDDLE_AVX512
  switch (cpu_capability()) {
    case CpuCapability::avx512:
      return run_avx512<function>(arguments...);
    case CpuCapability::avx2:
      return run_avx2<function>(arguments...);
    case CpuCapability::baseline:
      break;
  }
#endif
  return function(arguments...);
}

}  // namespace heddle

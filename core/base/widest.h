// Loops in the widest registers that the processor has.
#pragma once

// For a function that is not a template: compiled for several generations of x86-64, one of which is chosen
// when the library is loaded. Products and sums are fused where the processor can, so do not use it where
// every machine must compute the same bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define HEDDLE_WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define HEDDLE_WIDEST
#endif

// For what such a function calls: it is compiled for the same processors.
#define HEDDLE_INLINE inline __attribute__((always_inline))

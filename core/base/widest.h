// Loops in the widest registers that the processor has.
#pragma once

// Before a function that is no template: it is compiled for several generations of x86-64, and the machine
// picks one when the library is loaded. A sum of products is fused where the processor can, so keep it out of
// loops whose bits must be the same on every machine.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define HEDDLE_WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define HEDDLE_WIDEST
#endif

// Properties of the processor that a run depends on: how threads that share cores wait, which kernels it
// runs, and whether it has bfloat16 products.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

namespace heddle {

// OpenMP reads it once, when LibTorch is loaded.
inline constexpr const char* kWaitPolicy = "OMP_WAIT_POLICY";

// "  threads 2 on each of 2 ranks, more than the 2 cores: waiting is passive\n"; empty where each thread has
// a core. policy: of the environment, null where it is not set.
std::string threads_text(int threads, int local_ranks, int cores, const char* policy);

// Throws what is wrong with HEDDLE_CPU_CAPABILITY or HEDDLE_PACKED_PRODUCT, before a kernel reads them.
void check_kernel_settings();

// Whether this processor multiplies bfloat16 numbers by instructions of their own.
bool has_bfloat16_products();

// What to say of a run whose products are in a 16-bit dtype on a processor without these instructions, with
// the override; empty: nothing. stored: the dtype of the parameters.
std::string slow_products(const std::string& strategy, c10::ScalarType products, c10::ScalarType stored,
                          bool has_bfloat16_products);

}  // namespace heddle

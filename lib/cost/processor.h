// Properties of the processor: waiting policy of threads that share cores, kernels, and bfloat16 products.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

namespace heddle {

// Read by OpenMP once, when LibTorch is loaded.
inline constexpr const char* kWaitPolicy = "OMP_WAIT_POLICY";

// Returns "  threads 2 on each of 2 ranks, more than the 2 cores: waiting is passive
// "; empty if each thread has a core. policy: value in the environment, null if not set.
std::string threads_text(int threads, int local_ranks, int cores, const char* policy);

// Throws for invalid values of HEDDLE_CPU_CAPABILITY or HEDDLE_PACKED_PRODUCT, before a kernel reads them.
void check_kernel_settings();

// Whether this processor has instructions for bfloat16 products.
bool has_bfloat16_products();

// Returns a warning for 16-bit products on a processor without instructions for them, with the override that
// avoids them; empty: no warning. stored: dtype of the parameters.
std::string slow_products(const std::string& strategy, c10::ScalarType products, c10::ScalarType stored,
                          bool has_bfloat16_products);

}  // namespace heddle

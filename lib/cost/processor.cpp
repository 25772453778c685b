// Messages about threads and dtypes of the processor.
#include "lib/cost/processor.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <strings.h>

#include "core/base/cpu_settings.h"
#include "lib/cost/shared_cores.h"

namespace heddle {

std::string threads_text(int threads, int local_ranks, int cores, const char* policy) {
  if (!share_cores(threads, local_ranks, cores)) return "";
  const bool passive = policy != nullptr && ::strcasecmp(policy, "passive") == 0;
  return "  threads " + std::to_string(threads) + " on each of " + std::to_string(local_ranks) +
         (local_ranks == 1 ? " rank" : " ranks") + ", more than the " + std::to_string(cores) +
         (cores == 1 ? " core" : " cores") + ": waiting is " +
         (passive ? "passive" : "not passive, as the environment says; OMP_WAIT_POLICY=passive is faster") +
         "\n";
}

void check_kernel_settings() {
  cpu_capability();
  packed_product_setting();
}

bool has_bfloat16_products() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") != 0;
#elif defined(__aarch64__)
  constexpr unsigned long kBfloat16 = 1ul << 14;  // HWCAP2_BF16
  return (::getauxval(AT_HWCAP2) & kBfloat16) != 0;
#else
  return false;
#endif
}

std::string slow_products(const std::string& strategy, c10::ScalarType products, c10::ScalarType stored,
                          bool has_bfloat16_products) {
  if (products == at::kFloat || (products == at::kBFloat16 && has_bfloat16_products)) return "";
  const std::string word = products == at::kHalf ? "float16" : "bfloat16";
  const std::string change = stored == products ? "--model.dtype float32"
                                                : "--distributed.mp_policy '{param_dtype: float32, "
                                                  "reduce_dtype: float32}'";
  return "products are in " + word + " under " + strategy + ", and this processor has no instructions for " +
         word + ": steps take up to ten times as long as in float32; " + change + " computes in float32";
}

}  // namespace heddle

// Reads HEDDLE_CPU_CAPABILITY and HEDDLE_PACKED_PRODUCT.
#include "core/base/cpu_settings.h"

#include <array>
#include <cstdlib>
#include <string>

#include "core/base/widest.h"
#include "heddle/base/error.h"

namespace heddle {
namespace {

constexpr std::array<const char*, 3> kCapabilities{"default", "avx2", "avx512"};

std::string capability_name(CpuCapability capability) {
  return kCapabilities[static_cast<size_t>(capability)];
}

// "default", "default or avx2", "default, avx2 or avx512".
std::string names_up_to(CpuCapability most) {
  const auto last = static_cast<size_t>(most);
  std::string out = kCapabilities[0];
  for (size_t i = 1; i <= last; ++i) out += (i == last ? " or " : ", ") + std::string(kCapabilities[i]);
  return out;
}

}  // namespace

CpuCapability processor_capability() {
#ifdef HEDDLE_AVX512
  if (__builtin_cpu_supports("x86-64-v4")) return CpuCapability::avx512;
  if (__builtin_cpu_supports("x86-64-v3")) return CpuCapability::avx2;
#endif
  return CpuCapability::baseline;
}

CpuCapability parse_cpu_capability(const char* value, CpuCapability of_processor) {
  const std::string given = value == nullptr ? "" : value;
  if (given.empty()) return of_processor;
  const std::string hint = "set it to " + names_up_to(of_processor) + ", or unset it";
  for (size_t i = 0; i < kCapabilities.size(); ++i) {
    if (given != kCapabilities[i]) continue;
    const auto wanted = static_cast<CpuCapability>(i);
    if (wanted <= of_processor) return wanted;
    throw Error(ErrorCode::usage, "HEDDLE_CPU_CAPABILITY",
                "it is " + given + ", but the widest instruction set of this processor is " +
                    capability_name(of_processor),
                hint);
  }
  throw Error(ErrorCode::usage, "HEDDLE_CPU_CAPABILITY",
              "it is '" + given + "', but must be " + names_up_to(CpuCapability::avx512), hint);
}

std::optional<bool> parse_packed_product(const char* value) {
  const std::string given = value == nullptr ? "" : value;
  if (given.empty()) return std::nullopt;
  if (given == "1" || given == "0") return given == "1";
  throw Error(ErrorCode::usage, "HEDDLE_PACKED_PRODUCT", "it is '" + given + "', but must be 0 or 1",
              "set it to 1 to compute every float32 product on the CPU with heddle's kernel, to 0 to compute "
              "all of them with LibTorch, or unset it");
}

CpuCapability cpu_capability() {
  static const CpuCapability capability =
      parse_cpu_capability(std::getenv("HEDDLE_CPU_CAPABILITY"), processor_capability());
  return capability;
}

std::optional<bool> packed_product_setting() {
  static const std::optional<bool> setting = parse_packed_product(std::getenv("HEDDLE_PACKED_PRODUCT"));
  return setting;
}

}  // namespace heddle

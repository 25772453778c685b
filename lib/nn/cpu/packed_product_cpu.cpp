// The loops of a packed product, compiled for AVX-512, AVX2 and what every x86-64 has.
#include "lib/nn/cpu/packed_product_cpu.h"

#include <array>
#include <memory>

#include "lib/nn/experts/packed_product.h"

namespace heddle::model {
namespace {

packed::Blocks& blocks_of_thread() {
  static thread_local const std::unique_ptr<packed::Blocks> blocks(new packed::Blocks);
  return *blocks;
}

#define HEDDLE_PACKED_PRODUCT(Set, TARGET)                    \
  TARGET void packed_product_##Set(const PackedProduct& of) { \
    packed::product_of<tile::Set>(of, blocks_of_thread());    \
  }

HEDDLE_PACKED_PRODUCT(Sse2, )
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
HEDDLE_PACKED_PRODUCT(Avx2, __attribute__((target("arch=x86-64-v3"))))
HEDDLE_PACKED_PRODUCT(Avx512, __attribute__((target("arch=x86-64-v4"))))
constexpr std::array<PackedProductKernel, 3> kPackedProducts{packed_product_Avx512, packed_product_Avx2,
                                                             packed_product_Sse2};
#else
constexpr std::array<PackedProductKernel, 1> kPackedProducts{packed_product_Sse2};
#endif

}  // namespace

std::span<const PackedProductKernel> supported_packed_products() {
  const std::span<const PackedProductKernel> all = kPackedProducts;
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  return all.subspan(__builtin_cpu_supports("x86-64-v4") ? 0 : __builtin_cpu_supports("x86-64-v3") ? 1 : 2);
#else
  return all;
#endif
}

void packed_product(const PackedProduct& of) {
  static const PackedProductKernel kernel = supported_packed_products().front();
  kernel(of);
}

}  // namespace heddle::model

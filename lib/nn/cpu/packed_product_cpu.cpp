// The loops of a packed product, compiled for AVX-512, AVX2 and what every x86-64 has.
#include "lib/nn/cpu/packed_product_cpu.h"

#include <array>
#include <memory>

#include "lib/nn/experts/packed_pairs.h"

namespace heddle::model {
namespace {

packed::Blocks& blocks_of_thread() {
  static thread_local const std::unique_ptr<packed::Blocks> blocks(new packed::Blocks);
  return *blocks;
}

#define HEDDLE_TILE(name, Set, Adds, TARGET)                                                              \
  TARGET __attribute__((noinline)) void name##_##Set(const tile::Operands<float>& of, int64_t rows,       \
                                                     int64_t columns, int64_t depth) {                    \
    tile::product<tile::Set, Adds>(of, rows, columns, depth);                                             \
  }                                                                                                       \
  TARGET __attribute__((noinline)) void name##_ahead_##Set(const tile::Operands<float>& of, int64_t rows, \
                                                           int64_t columns, int64_t depth,                \
                                                           const packed::Ahead& ahead) {                  \
    tile::product<tile::Set, Adds>(of, rows, columns, depth, ahead);                                      \
  }
#define HEDDLE_PACKED_PRODUCT(Set, TARGET)                                                         \
  HEDDLE_TILE(set_tile, Set, false, TARGET)                                                        \
  HEDDLE_TILE(add_tile, Set, true, TARGET)                                                         \
  constexpr packed::TileProducts kTiles##Set{set_tile_##Set, add_tile_##Set, set_tile_ahead_##Set, \
                                             add_tile_ahead_##Set};                                \
  TARGET void packed_product_##Set(const PackedProduct<float>& of) {                               \
    packed::multiply_packed<tile::Set, kTiles##Set>(of, blocks_of_thread());                       \
  }

HEDDLE_PACKED_PRODUCT(Sse2, )
#ifdef HEDDLE_AVX512
HEDDLE_PACKED_PRODUCT(Avx2, HEDDLE_AVX2)
HEDDLE_PACKED_PRODUCT(Avx512, HEDDLE_AVX512)
#define HEDDLE_HAS_PAIRS
HEDDLE_AVX512 void packed_pairs(const PackedProduct<c10::BFloat16>& of) {
  packed::multiply_packed<tile::Avx512Pairs>(of, blocks_of_thread());
}
constexpr std::array<PackedProductKernel<float>, 3> kPackedProducts{packed_product_Avx512,
                                                                    packed_product_Avx2, packed_product_Sse2};
#else
constexpr std::array<PackedProductKernel<float>, 1> kPackedProducts{packed_product_Sse2};
#endif

}  // namespace

std::span<const PackedProductKernel<float>> supported_packed_products() {
  const std::span<const PackedProductKernel<float>> all = kPackedProducts;
  return all.subspan(all.size() - 1 - static_cast<size_t>(cpu_capability()));
}

void packed_product(const PackedProduct<float>& of) {
  static const PackedProductKernel<float> kernel = supported_packed_products().front();
  kernel(of);
}

bool has_packed_product_of_bfloat16() {
#ifdef HEDDLE_HAS_PAIRS
  return cpu_capability() == CpuCapability::avx512 && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

void packed_product([[maybe_unused]] const PackedProduct<c10::BFloat16>& of) {
#ifdef HEDDLE_HAS_PAIRS
  packed_pairs(of);
#endif
}

}  // namespace heddle::model

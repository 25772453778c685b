// The loops of a tile, compiled for AVX-512, AVX2 and what every x86-64 has.
#include "lib/nn/cpu/attend_tile_cpu.h"

#include "lib/nn/attention/attend_tile.h"

namespace heddle::model {
namespace {

template <class Set, class Number = typename Set::Number>
HEDDLE_INLINE void add_key_product(const KeyProduct<Number>& of) {
  for (int64_t row = 0; row < of.rows; row += kTileRows)
    tile::product<Set, true>(tile::Operands<Number>{of.a + row, 1, kBlockKeys, of.b, of.columns,
                                                    of.c + row * of.columns, of.columns},
                             of.rows - row < kTileRows ? of.rows - row : kTileRows, of.columns, of.depth);
}

#define HEDDLE_TILE_KERNELS(Set, TARGET)                                     \
  TARGET void attend_##Set(const AttendTile<tile::Set::Number>& tile) {      \
    tile::attend<tile::Set>(tile);                                           \
  }                                                                          \
  TARGET void gradients_##Set(const GradientTile<tile::Set::Number>& tile) { \
    tile::gradients_of_tile<tile::Set>(tile);                                \
  }                                                                          \
  TARGET void product_##Set(const KeyProduct<tile::Set::Number>& of) {       \
    add_key_product<tile::Set>(of);                                          \
  }                                                                          \
  constexpr TileKernels<tile::Set::Number> k##Set{attend_##Set, gradients_##Set, product_##Set};

HEDDLE_TILE_KERNELS(Sse2, )
HEDDLE_TILE_KERNELS(Doubles, )
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HEDDLE_HAS_WIDE_TILES
HEDDLE_TILE_KERNELS(Avx2, __attribute__((target("arch=x86-64-v3"))))
HEDDLE_TILE_KERNELS(Avx512, __attribute__((target("arch=x86-64-v4"))))
#endif

}  // namespace

std::span<const TileKernels<float>* const> supported_tile_kernels() {
#ifdef HEDDLE_HAS_WIDE_TILES
  static constexpr const TileKernels<float>* kAll[] = {&kAvx512, &kAvx2, &kSse2};
  const size_t first = __builtin_cpu_supports("x86-64-v4") ? 0 : __builtin_cpu_supports("x86-64-v3") ? 1 : 2;
#else
  static constexpr const TileKernels<float>* kAll[] = {&kSse2};
  const size_t first = 0;
#endif
  return std::span(kAll).subspan(first);
}

template <>
const TileKernels<float>& tile_kernels<float>() {
  static const TileKernels<float>& kernels = *supported_tile_kernels().front();
  return kernels;
}

template <>
const TileKernels<double>& tile_kernels<double>() {
  return kDoubles;
}

}  // namespace heddle::model

// The loops of a tile and over rows, compiled for AVX-512, AVX2 and what every x86-64 has.
#include "lib/nn/cpu/attend_tile_cpu.h"

#include <array>

#include "lib/nn/attention/attend_rows.h"
#include "lib/nn/attention/attend_tile.h"
#include "lib/nn/attention/attend_whole.h"
#include "lib/nn/attention/row_loops.h"

namespace heddle::model {
namespace {

template <class Set, class Number = typename Set::Number>
HEDDLE_INLINE void add_key_product(const KeyProduct<Number>& of) {
  for (int64_t row = 0; row < of.rows; row += kTileRows)
    tile::product<Set, true>(tile::Operands<Number>{of.a + row, 1, kBlockKeys, of.b, of.b_row,
                                                    of.c + row * of.columns, of.columns},
                             of.rows - row < kTileRows ? of.rows - row : kTileRows, of.columns, of.depth);
}

#define HEDDLE_TILE_KERNELS(Set, TARGET)                                     \
  TARGET void attend_##Set(const AttendTile<tile::Set::Number>& tile) {      \
    tile::attend<tile::Set>(tile);                                           \
  }                                                                          \
  TARGET void whole_##Set(const WholeTile<tile::Set::Number>& tile) {        \
    tile::attend_whole<tile::Set>(tile);                                     \
  }                                                                          \
  TARGET void gradients_##Set(const GradientTile<tile::Set::Number>& tile) { \
    tile::gradients_of_tile<tile::Set>(tile);                                \
  }                                                                          \
  TARGET void product_##Set(const KeyProduct<tile::Set::Number>& of) {       \
    add_key_product<tile::Set>(of);                                          \
  }                                                                          \
  constexpr TileKernels<tile::Set::Number> k##Set{attend_##Set, whole_##Set, gradients_##Set, product_##Set};

using pack::HeadColumns;

#define HEDDLE_ROW_KERNELS(Set, Stored, TARGET)                                                          \
  TARGET void pack_##Set##_##Stored(const HeadColumns<const Stored>& from, int64_t count,                \
                                    tile::Set::Number scale, tile::Set::Number* to) {                    \
    tile::pack_rows<tile::Set>(from, count, scale, to);                                                  \
  }                                                                                                      \
  TARGET void by_column_##Set##_##Stored(const HeadColumns<const Stored>& from, int64_t count,           \
                                         tile::Set::Number scale, tile::Set::Number* to) {               \
    tile::pack_rows_by_column<tile::Set>(from, count, scale, to);                                        \
  }                                                                                                      \
  TARGET void dot_##Set##_##Stored(const HeadColumns<const Stored>& a, int64_t count,                    \
                                   const tile::Set::Number* b, int64_t b_row, tile::Set::Number* sums) { \
    tile::dot_rows<tile::Set>(a, count, b, b_row, sums);                                                 \
  }                                                                                                      \
  TARGET void write_##Set##_##Stored(const tile::Set::Number* from, int64_t count,                       \
                                     const tile::Set::Number* factors, int64_t step, bool add,           \
                                     const HeadColumns<Stored>& to) {                                    \
    if (add) return tile::write_rows<tile::Set, true>(from, count, factors, step, to);                   \
    tile::write_rows<tile::Set, false>(from, count, factors, step, to);                                  \
  }                                                                                                      \
  constexpr pack::RowKernels<Stored> kRows##Set##_##Stored{                                              \
      pack_##Set##_##Stored, by_column_##Set##_##Stored, dot_##Set##_##Stored, write_##Set##_##Stored};

#define HEDDLE_FLOAT_KERNELS(Set, TARGET)   \
  HEDDLE_TILE_KERNELS(Set, TARGET)          \
  HEDDLE_ROW_KERNELS(Set, float, TARGET)    \
  HEDDLE_ROW_KERNELS(Set, BFloat16, TARGET) \
  HEDDLE_ROW_KERNELS(Set, Half, TARGET)

using c10::BFloat16;
using c10::Half;
HEDDLE_FLOAT_KERNELS(Sse2, )
HEDDLE_TILE_KERNELS(Doubles, )
HEDDLE_ROW_KERNELS(Doubles, double, )
#ifdef HEDDLE_AVX512
HEDDLE_FLOAT_KERNELS(Avx2, HEDDLE_AVX2)
HEDDLE_FLOAT_KERNELS(Avx512, HEDDLE_AVX512)
#endif

// Selects the kernels that this processor runs from all, in the order of the sets.
template <class Kernels, size_t Count>
std::span<const Kernels* const> that_run(const std::array<const Kernels*, Count>& all) {
  return std::span(all).subspan(Count - 1 - static_cast<size_t>(cpu_capability()));
}

#ifdef HEDDLE_AVX512
#define HEDDLE_ALL_SETS(of, suffix) \
  { &of##Avx512##suffix, &of##Avx2##suffix, &of##Sse2##suffix }
constexpr size_t kSets = 3;
#else
#define HEDDLE_ALL_SETS(of, suffix) \
  { &of##Sse2##suffix }
constexpr size_t kSets = 1;
#endif

}  // namespace

std::span<const TileKernels<float>* const> supported_tile_kernels() {
  static constexpr std::array<const TileKernels<float>*, kSets> kAll = HEDDLE_ALL_SETS(k, );
  return that_run(kAll);
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

namespace pack {

#define HEDDLE_ROWS_OF(Stored)                                                                              \
  template <>                                                                                               \
  HEDDLE_API std::span<const RowKernels<Stored>* const> supported_row_kernels<Stored>() {                   \
    static constexpr std::array<const RowKernels<Stored>*, kSets> kAll = HEDDLE_ALL_SETS(kRows, _##Stored); \
    return that_run(kAll);                                                                                  \
  }                                                                                                         \
  template <>                                                                                               \
  const RowKernels<Stored>& row_kernels<Stored>() {                                                         \
    static const RowKernels<Stored>& kernels = *supported_row_kernels<Stored>().front();                    \
    return kernels;                                                                                         \
  }

HEDDLE_ROWS_OF(float)
HEDDLE_ROWS_OF(BFloat16)
HEDDLE_ROWS_OF(Half)

template <>
const RowKernels<double>& row_kernels<double>() {
  return kRowsDoubles_double;
}

}  // namespace pack
}  // namespace heddle::model

// Times of products by tiles and waves, of attention by tiles of queries, and of other operators by bytes.
#include "lib/cost/time/operator_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace heddle {
namespace {

// Tile of a product on one multiprocessor, and the share of the peak that it reaches.
struct Tile {
  double rows, columns, speed;
};
constexpr std::array kTiles = {Tile{256, 128, 1},   Tile{128, 256, 1},   Tile{128, 128, 0.97},
                               Tile{128, 64, 0.85}, Tile{64, 128, 0.85}, Tile{64, 64, 0.7}};

constexpr double kQueries = 128;        // per tile of attention
constexpr int64_t kLeastInner = 512;    // minimum steps along the inner dim per part of a split product
constexpr int64_t kMostParts = 16;      // maximum parts of a split product
constexpr double kPartialSumBytes = 4;  // bytes per element of a partial result

double moving(const OperatorCall& call, const MachineFile& machine) {
  const double bandwidth = machine.memory_bandwidth * machine.memory_efficiency;
  return bandwidth > 0 ? (call.cost.read + call.cost.written) / bandwidth : 0;
}

// Number of waves. A partial last wave costs half of its idle share, because kernels split work more finely
// and clocks rise.
double waves(double tiles, const MachineFile& machine) {
  const double exact = tiles / static_cast<double>(machine.multiprocessors);
  return (std::max(1.0, exact) + std::ceil(exact)) / 2;
}

// Returns the time with the best tile, with the inner dim in one part or split into parts that are summed.
double multiplying(const ProductShape& shape, const MachineFile& machine) {
  const double rate = machine.peak(shape.dtype) * machine.efficiency(shape.dtype) /
                      static_cast<double>(machine.multiprocessors);
  if (rate <= 0) return 0;
  const auto batch = static_cast<double>(shape.batch), rows = static_cast<double>(shape.m),
             columns = static_cast<double>(shape.n);
  double best = 0;
  for (const Tile& tile : kTiles) {
    const double tiles = batch * std::ceil(rows / tile.rows) * std::ceil(columns / tile.columns);
    for (int64_t parts = 1; parts <= kMostParts; parts *= 2) {
      if (parts > 1 && shape.k / parts < kLeastInner) break;
      const double inner =
          static_cast<double>(shape.k) / static_cast<double>(parts) + machine.product_overhead;
      double seconds = waves(tiles * static_cast<double>(parts), machine) * 2 * tile.rows * tile.columns *
                       inner / (rate * tile.speed);
      if (parts > 1)
        seconds += static_cast<double>(parts) * batch * rows * columns * kPartialSumBytes /
                   (machine.memory_bandwidth * machine.memory_efficiency);
      if (best == 0 || seconds < best) best = seconds;
    }
  }
  return best;
}

// Head sizes other than 128 use the matrix units less efficiently. Tiles on the diagonal are computed
// completely.
double attending(const OperatorCall& call, const MachineFile& machine, bool backward) {
  const ProductShape& shape = *call.product;
  const double size = shape.k < 128 ? 0.85 : shape.k > 128 ? 0.9 : 1;
  const double peak =
      machine.peak_16 > 0 && c10::elementSize(shape.dtype) <= 2 ? machine.peak_16 : machine.peak_32;
  const double rate = peak * size * (backward ? machine.attention_backward : machine.attention_forward);
  if (rate <= 0 || shape.m == 0) return 0;
  const auto length = static_cast<double>(shape.m);
  const double tiles = static_cast<double>(shape.batch) * std::ceil(length / kQueries),
               exact = tiles / static_cast<double>(machine.multiprocessors);
  return call.cost.operations / rate * (1 + kQueries / length) * waves(tiles, machine) / exact;
}

}  // namespace

const char* kind_of(const OperatorCall& call) {
  if (!call.product) return "other operators";
  return std::string_view(call.name).starts_with("heddle::attention") ? "attention" : "products";
}

double operator_seconds(const OperatorCall& call, const MachineFile& machine) {
  const double bytes = moving(call, machine);
  if (!call.product) return bytes;
  const std::string_view name = call.name;
  if (name.starts_with("heddle::attention"))
    return std::max(bytes, attending(call, machine, name == "heddle::attention_backward"));
  return std::max(bytes, multiplying(*call.product, machine));
}

}  // namespace heddle

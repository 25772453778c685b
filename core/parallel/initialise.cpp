// First values of parameters: counter based (Philox 4x32-10, Salmon et al. 2011), so they do not depend on
// how a parameter is cut.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <array>
#include <cmath>
#include <numbers>

#include "core/model/parameter.h"
#include "heddle/parallel/build.h"

namespace heddle::parallel {
namespace {

using Words = std::array<uint32_t, 4>;

Words philox(Words counter, uint64_t key) {
  uint32_t low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0], b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ low, static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ high, static_cast<uint32_t>(a)};
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  return counter;
}

// FNV-1a, so that the key of a name is the same everywhere.
uint64_t key_of(const std::string& name, uint64_t seed) {
  uint64_t hash = 0xcbf29ce484222325ull ^ seed;
  for (const unsigned char c : name) hash = (hash ^ c) * 0x100000001b3ull;
  return hash ^ (seed * 0x9E3779B97F4A7C15ull);
}

// Four normal values for the elements 4*block to 4*block+3 (Box and Muller).
std::array<float, 4> normals(uint64_t block, uint64_t key) {
  const Words words = philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0}, key);
  std::array<float, 4> out;
  for (int pair = 0; pair < 2; ++pair) {
    const double u = (words[2 * pair] + 1.0) / 4294967297.0;  // in (0, 1)
    const double angle = 2 * std::numbers::pi * words[2 * pair + 1] / 4294967296.0;
    const double radius = std::sqrt(-2 * std::log(u));
    out[2 * pair] = static_cast<float>(radius * std::cos(angle));
    out[2 * pair + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return out;
}

// The elements [first, first + count) of the whole parameter, in row-major order.
void fill_run(float* out, int64_t first, int64_t count, uint64_t key, float std) {
  int64_t at = first;
  while (at < first + count) {
    const auto values = normals(static_cast<uint64_t>(at / 4), key);
    for (int64_t lane = at % 4; lane < 4 && at < first + count; ++lane, ++at)
      out[at - first] = std * values[lane];
  }
}

}  // namespace

void initialise(const Shard& shard, uint64_t seed) {
  at::Tensor target = shard.tensor.detach();
  if (shard.init.kind == Init::Kind::zeros) return void(target.zero_());
  if (shard.init.kind == Init::Kind::ones) return void(target.fill_(1));
  if (target.numel() == 0) return;

  const at::Tensor values = at::empty(target.sizes(), at::kFloat);
  const auto box = target.sizes();
  const int64_t dims = static_cast<int64_t>(box.size());
  const int64_t run = dims == 0 ? 1 : box[dims - 1];
  const uint64_t key = key_of(shard.name, seed);
  float* out = values.data_ptr<float>();
  const bool by_function = shard.init.kind == Init::Kind::function;
  const float std = by_function ? 1 : static_cast<float>(shard.init.std);
  at::parallel_for(0, target.numel() / run, 1 + (1 << 14) / run, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      // `row` counts the rows of the box; `first` is where the row starts in the whole parameter.
      int64_t rest = row, first = dims == 0 ? 0 : shard.offset[dims - 1],
              stride = dims == 0 ? 1 : shard.shape[dims - 1];
      for (int64_t dim = dims - 2; dim >= 0; --dim) {
        first += (shard.offset[dim] + rest % box[dim]) * stride;
        rest /= box[dim];
        stride *= shard.shape[dim];
      }
      fill_run(out + row * run, first, run, key, std);
    }
  });
  if (by_function) model::apply_function(values, shard.init, shard.shape, shard.offset);
  target.copy_(values);
}

}  // namespace heddle::parallel

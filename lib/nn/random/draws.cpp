// Uniform numbers by hashes of 32 bits: a token's key and the salt give a word, the column another.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include "heddle/nn/dropout.h"
#include "lib/nn/random/hash.h"

namespace heddle::model {
namespace {

constexpr uint32_t kGolden32 = 0x9E3779B9u;
constexpr uint32_t kFirst = 0x7FEB352Du, kSecond = 0x846CA68Bu;
constexpr float kOneBit = 1.0f / (1 << 24);
constexpr int64_t kWord = 0xFFFFFFFF;

// Wellons' hash of 32 bits (lowbias32): two products, which processors vectorize.
uint32_t mixed32(uint32_t x) {
  x = (x ^ (x >> 16)) * kFirst;
  x = (x ^ (x >> 15)) * kSecond;
  return x ^ (x >> 16);
}

void fill_row(float* to, int64_t columns, uint32_t word) {
  for (int64_t i = 0; i < columns; ++i)
    to[i] = static_cast<float>(mixed32(word + static_cast<uint32_t>(i) * kGolden32) >> 8) * kOneBit;
}

at::Tensor on_cpu(const at::Tensor& keys, int64_t columns, uint64_t salt) {
  const at::Tensor out = at::empty({keys.numel(), columns}, keys.options().dtype(at::kFloat));
  const int64_t* from = keys.const_data_ptr<int64_t>();
  float* to = out.mutable_data_ptr<float>();
  at::parallel_for(0, keys.numel(), 1 + 32768 / (columns + 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      fill_row(to + row * columns, columns,
               static_cast<uint32_t>(mixed(static_cast<uint64_t>(from[row]) + salt) >> 32));
  });
  return out;
}

// Draws by LibTorch's operators.

// x in 0 .. 2^32 - 1.
at::Tensor mixed32(at::Tensor x) {
  x = (x.bitwise_xor(x.__rshift__(16)) * static_cast<int64_t>(kFirst)).bitwise_and(kWord);
  x = (x.bitwise_xor(x.__rshift__(15)) * static_cast<int64_t>(kSecond)).bitwise_and(kWord);
  return x.bitwise_xor(x.__rshift__(16));
}

at::Tensor by_operators(const at::Tensor& keys, int64_t columns, uint64_t salt) {
  const at::Tensor words = shifted(mixed(keys.reshape({-1, 1}) + static_cast<int64_t>(salt)), 32);
  const at::Tensor places =
      (at::arange(columns, keys.options()) * static_cast<int64_t>(kGolden32)).bitwise_and(kWord);
  return mixed32((words + places).bitwise_and(kWord)).__rshift__(8).to(at::kFloat) * kOneBit;
}

}  // namespace

int64_t draw_key(uint64_t seed, int64_t step, int64_t row, int64_t column) {
  uint64_t key = mixed(seed * kGolden + 1);
  for (const int64_t part : {step, row, column}) key = mixed(key + static_cast<uint64_t>(part) * kGolden + 1);
  return static_cast<int64_t>(key);
}

uint64_t draw_salt(std::string_view name) {
  uint64_t salt = 0;
  for (const char letter : name) salt = mixed(salt + static_cast<unsigned char>(letter) * kGolden + 1);
  return salt;
}

at::Tensor uniform_draws(const at::Tensor& keys, int64_t columns, uint64_t salt) {
  if (keys.is_meta()) return at::empty({keys.numel(), columns}, keys.options().dtype(at::kFloat));
  return keys.is_cpu() ? on_cpu(keys, columns, salt) : by_operators(keys, columns, salt);
}

}  // namespace heddle::model

// Packing and unpacking of 4-bit codes on the CPU.
#include "packed.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "heddle/base/error.h"
#include "heddle/ops/compute_log.h"
#include "scales.h"

namespace heddle::quantize {

const std::array<float, 16> kCodes = {-1.0F,
                                      -0.6961928009986877F,
                                      -0.5250730514526367F,
                                      -0.39491748809814453F,
                                      -0.28444138169288635F,
                                      -0.18477343022823334F,
                                      -0.09105003625154495F,
                                      0.0F,
                                      0.07958029955625534F,
                                      0.16093020141124725F,
                                      0.24611230194568634F,
                                      0.33791524171829224F,
                                      0.44070982933044434F,
                                      0.5626170039176941F,
                                      0.7229568362236023F,
                                      1.0F};

namespace {

constexpr int64_t kCodeBytes = kBlock / 2;
constexpr int64_t kGrain = 256;  // blocks per task

uint8_t nearest(float value) {
  static const std::array<float, 15> bounds = bounds_of(kCodes);
  uint8_t code = 0;
  for (const float bound : bounds) code = static_cast<uint8_t>(code + (value > bound));
  return code;
}

// Packs `count` values of one block and returns their scale. As in bitsandbytes, values of a partial block
// are divided by the scale, and those of a whole block are multiplied by its inverse. Returns NaN if a value
// is inf or nan.
float pack_block(const float* numbers, int64_t count, uint8_t* out) {
  float most = 0, zero = 0;
  for (int64_t i = 0; i < count; ++i) {
    most = std::max(most, std::fabs(numbers[i]));
    zero += 0 * numbers[i];
  }
  if (zero != 0) return zero;
  const float least = std::max(most, 1e-38F), factor = 1 / least;
  for (int64_t i = 0; i < count; ++i) {
    const float part = count == kBlock ? numbers[i] * factor : numbers[i] / least;
    const uint8_t code = nearest(std::clamp(part, -1.0F, 1.0F));
    out[i / 2] = static_cast<uint8_t>(i % 2 == 0 ? code << 4 : out[i / 2] | code);
  }
  if (count % 2 != 0) out[count / 2] = static_cast<uint8_t>(out[count / 2] | nearest(0));
  return count == kBlock ? most : least;
}

void write_tables(const Form& form, uint8_t* bytes) {
  std::memcpy(bytes + form.tables_at(), kCodes.data(), sizeof(kCodes));
  std::memcpy(bytes + form.tables_at() + sizeof(kCodes), dynamic_code().data(), sizeof(dynamic_code()));
}

void write_scales(const std::vector<float>& scales, const Form& form, uint8_t* bytes) {
  if (!form.double_quant)
    return (void)std::memcpy(bytes + form.scales_at(), scales.data(), scales.size() * sizeof(float));
  const PackedScales packed = pack_scales(scales);
  std::memcpy(bytes + form.scales_at(), packed.codes.data(), packed.codes.size());
  std::memcpy(bytes + form.groups_at(), packed.groups.data(), packed.groups.size() * sizeof(float));
  std::memcpy(bytes + form.groups_at() + packed.groups.size() * sizeof(float), &packed.mean, sizeof(float));
}

template <class Out, class Stored>
void unpack_blocks(const uint8_t* packed, const std::vector<float>& scales, int64_t numbers, Out* out) {
  at::parallel_for(0, static_cast<int64_t>(scales.size()), kGrain, [&](int64_t begin, int64_t end) {
    std::array<Out, 16> values{};
    for (int64_t block = begin; block < end; ++block) {
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<Out>(static_cast<Stored>(kCodes[i] * scales[block]));
      const uint8_t* from = packed + block * kCodeBytes;
      Out* to = out + block * kBlock;
      const int64_t count = std::min(kBlock, numbers - block * kBlock);
      for (int64_t i = 0; i + 1 < count; i += 2) {
        to[i] = values[from[i / 2] >> 4];
        to[i + 1] = values[from[i / 2] & 15];
      }
      if (count % 2 != 0) to[count - 1] = values[from[count / 2] >> 4];
    }
  });
}

template <class Out>
void unpack_as(const uint8_t* packed, const Form& form, Out* out) {
  const std::vector<float> scales = scales_of(packed, form);
  if (form.stored == at::kBFloat16)
    unpack_blocks<Out, at::BFloat16>(packed, scales, form.numbers(), out);
  else if (form.stored == at::kHalf)
    unpack_blocks<Out, at::Half>(packed, scales, form.numbers(), out);
  else
    unpack_blocks<Out, float>(packed, scales, form.numbers(), out);
}

}  // namespace

int64_t Form::groups() const {
  return double_quant ? (blocks() + kGroup - 1) / kGroup : 0;
}
int64_t Form::scales_at() const {
  return blocks() * kCodeBytes;
}
int64_t Form::groups_at() const {
  const auto of_float = static_cast<int64_t>(sizeof(float));
  const int64_t end = scales_at() + blocks() * (double_quant ? 1 : of_float);
  return (end + of_float - 1) / of_float * of_float;
}
int64_t Form::tables_at() const {
  return groups_at() + (double_quant ? (groups() + 1) * static_cast<int64_t>(sizeof(float)) : 0);
}
int64_t Form::rows() const {
  const int64_t bytes = tables_at() + static_cast<int64_t>(sizeof(kCodes) + sizeof(dynamic_code()));
  return (bytes + kRow - 1) / kRow;
}

at::Tensor pack(const at::Tensor& weight, const Form& form) {
  const at::Tensor numbers = weight.to(at::kFloat).contiguous();
  const at::Tensor out = at::zeros({form.rows(), kRow}, at::kByte);
  const float* from = numbers.const_data_ptr<float>();
  uint8_t* bytes = out.mutable_data_ptr<uint8_t>();
  std::vector<float> scales(form.blocks());
  at::parallel_for(0, form.blocks(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block)
      scales[block] = pack_block(from + block * kBlock, std::min(kBlock, form.numbers() - block * kBlock),
                                 bytes + block * kCodeBytes);
  });
  if (std::any_of(scales.begin(), scales.end(), [](float scale) { return std::isnan(scale); }))
    throw Error(ErrorCode::input, "quantization", "a weight to quantize contains inf or nan",
                "use a model whose parameters are finite");
  if (!scales.empty()) write_scales(scales, form, bytes);
  write_tables(form, bytes);
  return out;
}

std::vector<float> scales_of(const uint8_t* packed, const Form& form) {
  std::vector<float> scales(form.blocks());
  if (!form.double_quant) {
    std::memcpy(scales.data(), packed + form.scales_at(), scales.size() * sizeof(float));
    return scales;
  }
  std::vector<float> groups(form.groups() + 1);
  std::memcpy(groups.data(), packed + form.groups_at(), groups.size() * sizeof(float));
  unpack_scales(packed + form.scales_at(), groups.data(), groups.back(), scales);
  return scales;
}

static at::Tensor unpack_on_meta(const at::Tensor& packed, const Form& form, at::ScalarType dtype) {
  at::Tensor out = at::empty({form.out, form.in}, packed.options().dtype(dtype));
  const auto numbers = static_cast<double>(form.numbers());
  record_operator("heddle::unpack_4_bits", {numbers, static_cast<double>(packed.nbytes()),
                                            numbers * static_cast<double>(out.element_size())});
  return out;
}

at::Tensor unpack(const at::Tensor& packed, const Form& form, at::ScalarType dtype) {
  if (packed.is_meta()) return unpack_on_meta(packed, form, dtype);
  if (!packed.is_cpu()) return unpack_by_operators(packed, form, dtype);
  const at::Tensor out = at::empty({form.out, form.in}, at::TensorOptions().dtype(dtype));
  const uint8_t* bytes = packed.const_data_ptr<uint8_t>();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "unpack", [&] {
    unpack_as<scalar_t>(bytes, form, out.mutable_data_ptr<scalar_t>());
  });
  return out;
}

}  // namespace heddle::quantize

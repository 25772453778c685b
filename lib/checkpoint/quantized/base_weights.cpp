// Finds the parts of quantized tensors and checks their headers.
#include "lib/checkpoint/quantized/base_weights.h"

#include <set>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/manifest.h"
#include "lib/checkpoint/safetensors/dtype_names.h"

namespace heddle::checkpoint {
namespace {

constexpr const char* kScaleInv = "_scale_inv";  // after DeepSeek-V3's files
// After DeepSeek-V4's files: M.scale of M.weight.
constexpr const char *kWeight = ".weight", *kScaleOf = ".scale";
constexpr const char* kScale = "_scale";    // one for a tensor, of compressed-tensors and ModelOpt
constexpr const char* kBlocks = "_blocks";  // after gpt_oss' files
constexpr const char* kScales = "_scales";
constexpr const char* kPacked = "_packed";         // of mxfp4 in compressed-tensors, with kScale
constexpr int64_t kMostGroups = int64_t{1} << 40;  // a tensor without elements may claim any size

bool is_eight_bit_float(at::ScalarType dtype) {
  return dtype == at::kFloat8_e4m3fn || dtype == at::kFloat8_e5m2;
}

// The name without its end; empty: it has another end.
std::string before(const std::string& name, const std::string& end) {
  return name.ends_with(end) ? name.substr(0, name.size() - end.size()) : "";
}

int64_t blocks(int64_t size, int64_t block) {
  return size / block + (size % block == 0 ? 0 : 1);
}

}  // namespace

BaseWeights::BaseWeights(std::filesystem::path directory, std::shared_ptr<const HfWeights> weights,
                         std::optional<Quantization> form)
    : directory_(std::move(directory)), weights_(std::move(weights)), form_(form) {}

QuantizedTensor BaseWeights::mxfp4_parts(const std::string& name) const {
  return form_->packed ? QuantizedTensor{name + kPacked, name + kScale}
                       : QuantizedTensor{name + kBlocks, name + kScales};
}

bool BaseWeights::is_mxfp4(const std::string& name) const {
  if (!form_ || form_->method != Quantization::Method::mxfp4 || weights_->has(name)) return false;
  const QuantizedTensor parts = mxfp4_parts(name);
  return weights_->has(parts.values) || weights_->has(parts.scales);
}

bool BaseWeights::is_quantized(const std::string& name) const {
  if (!form_) return false;
  if (form_->method == Quantization::Method::mxfp4) return is_mxfp4(name);
  return weights_->has(name) && (is_eight_bit_float(weights_->at(name).dtype) || is_fp4(name));
}

bool BaseWeights::is_fp4(const std::string& name) const {
  return form_ && form_->method == Quantization::Method::fp8 && name.ends_with(kWeight) &&
         weights_->has(name) && weights_->at(name).dtype == at::kChar;
}

// The first spelling where there are none.
std::string BaseWeights::fp8_scales(const std::string& name) const {
  const std::string scales = before(name, kWeight) + kScaleOf;
  const bool other = !weights_->has(name + kScaleInv) && name.ends_with(kWeight) && weights_->has(scales);
  return other ? scales : name + kScaleInv;
}

bool BaseWeights::has(const std::string& name) const {
  return weights_->has(name) || is_mxfp4(name);
}

std::vector<std::string> BaseWeights::names() const {
  if (!form_) return weights_->names();
  std::set<std::string> out;
  for (const std::string& name : weights_->names()) {
    if (form_->method == Quantization::Method::fp8) {
      const std::string values = before(name, kScaleInv), other = before(name, kScaleOf) + kWeight;
      const bool scales = weights_->has(values) || (is_quantized(other) && fp8_scales(other) == name);
      if (!scales) out.insert(name);
      continue;
    }
    std::string values = before(name, form_->packed ? kPacked : kBlocks);
    if (values.empty()) values = before(name, form_->packed ? kScale : kScales);
    out.insert(is_mxfp4(values) ? values : name);
  }
  return {out.begin(), out.end()};
}

const std::string& BaseWeights::file(const std::string& name) const {
  if (!is_mxfp4(name)) return weights_->file(name);
  const QuantizedTensor parts = mxfp4_parts(name);
  return weights_->file(weights_->has(parts.values) ? parts.values : parts.scales);
}

void BaseWeights::refuse(const std::string& name, const std::string& fault) const {
  throw Error(ErrorCode::input, (directory_ / file(name)).string(), fault,
              "download the model again, or use a copy in bfloat16");
}

// One of the two tensors of a quantized one.
const StoredTensor& BaseWeights::part(const std::string& name, const std::string& weights,
                                      const std::string& kind) const {
  if (weights_->has(name)) return weights_->at(name);
  refuse(weights, "holds quantized weights " + text::quoted(weights) + " without their " + kind +
                      ": tensor " + text::quoted(name) + " is missing");
}

BaseWeights::Tensor BaseWeights::fp8(const std::string& name) const {
  const StoredTensor& values = weights_->at(name);
  const std::string scales_name = fp8_scales(name), what = "tensor " + text::quoted(scales_name);
  if (values.dtype != at::kFloat8_e4m3fn)
    refuse(name, "tensor " + text::quoted(name) + " has the dtype " + name_of_dtype(values.dtype) +
                     "; quantized weights are read in F8_E4M3");
  if (!weights_->has(scales_name) && weights_->has(name + kScale))
    refuse(name, "tensor " + text::quoted(name + kScale) +
                     ": one scale for a whole tensor (compressed-tensors, ModelOpt) is not built");
  const StoredTensor& scales = part(scales_name, name, "scales");
  if (scales.dtype != at::kFloat && scales.dtype != at::kBFloat16 && scales.dtype != at::kFloat8_e8m0fnu)
    refuse(scales_name,
           what + " has the dtype " + name_of_dtype(scales.dtype) + ", scales have F32, BF16 or F8_E8M0");
  std::vector<int64_t> needed = values.shape;
  if (needed.size() < 2)
    refuse(name, "tensor " + text::quoted(name) + " has the shape " + written(values.shape) +
                     "; weights in fp8 have two dims or more");
  int64_t& rows = needed[needed.size() - 2];
  rows = blocks(rows, form_->block_rows);
  needed.back() = blocks(needed.back(), form_->block_columns);
  if (scales.shape != needed)
    refuse(scales_name, what + " has the shape " + written(scales.shape) + ", blocks of " +
                            written(std::vector{form_->block_rows, form_->block_columns}) + " of " +
                            written(values.shape) + " need " + written(needed));
  return {at::kBFloat16, values.shape};
}

// Two numbers a byte, and scales of 32 columns of a row.
BaseWeights::Tensor BaseWeights::fp4(const std::string& name) const {
  const StoredTensor& values = weights_->at(name);
  const std::string scales_name = fp8_scales(name), what = "tensor " + text::quoted(scales_name);
  const StoredTensor& scales = part(scales_name, name, "scales");
  if (scales.dtype != at::kFloat8_e8m0fnu)
    refuse(scales_name,
           what + " has the dtype " + name_of_dtype(scales.dtype) + ", scales of fp4 have F8_E8M0");
  if (values.shape.size() != 2 || values.shape[1] % kMxfp4Bytes != 0 ||
      values.shape[1] > kMostGroups * kMxfp4Bytes)
    refuse(name, "tensor " + text::quoted(name) + " has the shape " + written(values.shape) +
                     ", packed fp4 has [out, in / 2] of whole groups of 32");
  const std::vector<int64_t> needed = {values.shape[0], values.shape[1] / kMxfp4Bytes};
  if (scales.shape != needed)
    refuse(scales_name, what + " has the shape " + written(scales.shape) + ", " + text::quoted(name) +
                            " needs " + written(needed));
  return {at::kBFloat16, {values.shape[0], values.shape[1] * 2}};
}

BaseWeights::Tensor BaseWeights::mxfp4(const std::string& name) const {
  const auto [values_name, scales_name] = mxfp4_parts(name);
  const StoredTensor& values = part(values_name, name, "values");
  const StoredTensor& scales = part(scales_name, name, "scales");
  for (const auto& [one, tensor] : {std::pair(values_name, &values), std::pair(scales_name, &scales)})
    if (tensor->dtype != at::kByte)
      refuse(name, "tensor " + text::quoted(one) + " has the dtype " + name_of_dtype(tensor->dtype) +
                       ", mxfp4 has U8");
  if (form_->packed) {
    if (values.shape.size() != 2 || values.shape[1] % kMxfp4Bytes != 0 ||
        values.shape[1] > kMostGroups * kMxfp4Bytes)
      refuse(name, "tensor " + text::quoted(values_name) + " has the shape " + written(values.shape) +
                       ", packed mxfp4 has [out, in / 2] of whole groups of 32");
  } else if (values.shape.size() != 4 || values.shape[3] != kMxfp4Bytes || values.shape[2] > kMostGroups)
    refuse(name, "tensor " + text::quoted(values_name) + " has the shape " + written(values.shape) +
                     ", mxfp4 has [experts, out, in / 32, 16]");
  std::vector<int64_t> needed(values.shape.begin(), values.shape.end() - 1);
  if (form_->packed) needed.push_back(values.shape[1] / kMxfp4Bytes);
  if (scales.shape != needed)
    refuse(name, "tensor " + text::quoted(scales_name) + " has the shape " + written(scales.shape) + ", " +
                     text::quoted(values_name) + " needs " + written(needed));
  if (form_->packed) return {at::kBFloat16, {values.shape[0], values.shape[1] * 2}};
  return {at::kBFloat16, {values.shape[0], values.shape[2] * kMxfp4Group, values.shape[1]}};
}

// Refuses scales of a tensor without need of them. Other modules may have a parameter "scale" of their own.
void BaseWeights::refuse_scales(const std::string& name) const {
  const std::string scales = fp8_scales(name);
  if (!weights_->has(scales) ||
      (scales.ends_with(kScaleOf) && weights_->at(scales).dtype != at::kFloat8_e8m0fnu))
    return;
  refuse(name, "tensor " + text::quoted(name) + " has the dtype " + name_of_dtype(weights_->at(name).dtype) +
                   " and scales ('" + scales + "'), which only F8_E4M3 and packed fp4 (I8) have");
}

BaseWeights::Tensor BaseWeights::at(const std::string& name) const {
  if (is_mxfp4(name)) return mxfp4(name);
  if (is_fp4(name)) return fp4(name);
  if (is_quantized(name)) return fp8(name);
  const StoredTensor& stored = weights_->at(name);
  if (is_eight_bit_float(stored.dtype))
    refuse(name, "tensor " + text::quoted(name) + " has the dtype " + name_of_dtype(stored.dtype) +
                     ", and config.json has no quantization_config that says how it is scaled");
  if (form_ && form_->method == Quantization::Method::fp8) refuse_scales(name);
  return {stored.dtype, stored.shape};
}

void BaseWeights::read(const std::string& name, std::span<const int64_t> offset,
                       const at::Tensor& out) const {
  if (is_mxfp4(name))
    return (form_->packed ? read_packed_mxfp4 : read_mxfp4)(*weights_, mxfp4_parts(name), offset, out);
  if (is_fp4(name)) return read_packed_mxfp4(*weights_, {name, fp8_scales(name)}, offset, out);
  if (is_quantized(name)) return read_fp8(*weights_, {name, fp8_scales(name)}, *form_, offset, out);
  weights_->read(name, offset, out);
}

}  // namespace heddle::checkpoint

// The tensors of a Hugging Face directory as a model reads them: quantized ones dequantized.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/checkpoint/safetensors.h"
#include "lib/checkpoint/quantized/dequantize.h"
#include "lib/checkpoint/quantized/quantization.h"

namespace heddle::checkpoint {

// The tensors of files by plain names: fp8 has NAME with NAME_scale_inv, or M.weight with M.scale, in E4M3 or
// packed in fp4; mxfp4 has NAME_blocks with NAME_scales, or NAME_packed with NAME_scale. Other tensors are
// returned as they are. Opens nothing itself.
class HEDDLE_API BaseWeights {
 public:
  // Plain where `form` is empty.
  BaseWeights(std::filesystem::path directory, std::shared_ptr<const HfWeights> weights,
              std::optional<Quantization> form);

  bool has(const std::string& name) const;
  // Without scales of tensors that are there.
  std::vector<std::string> names() const;
  const std::string& file(const std::string& name) const;

  struct Tensor {
    at::ScalarType dtype;  // bfloat16 of a dequantized one
    std::vector<int64_t> shape;
  };
  // From the headers. Throws Error{input} with file and tensor: scales that are missing or have another shape
  // or dtype than the values need, one scale for a whole tensor, eight-bit floats without
  // quantization_config.
  Tensor at(const std::string& name) const;
  bool is_quantized(const std::string& name) const;

  // The box [offset, offset + out.sizes()) of a tensor that at() accepts.
  void read(const std::string& name, std::span<const int64_t> offset, const at::Tensor& out) const;
  // Returns the mapped bytes of a tensor that is not quantized.
  std::string_view bytes(const std::string& name) const { return weights_->bytes(name); }

 private:
  bool is_mxfp4(const std::string& name) const;
  bool is_fp4(const std::string& name) const;  // beside fp8
  std::string fp8_scales(const std::string& name) const;
  Tensor fp8(const std::string& name) const;
  Tensor fp4(const std::string& name) const;
  Tensor mxfp4(const std::string& name) const;
  QuantizedTensor mxfp4_parts(const std::string& name) const;
  const StoredTensor& part(const std::string& name, const std::string& weights,
                           const std::string& kind) const;
  void refuse_scales(const std::string& name) const;
  [[noreturn]] void refuse(const std::string& name, const std::string& fault) const;

  std::filesystem::path directory_;
  std::shared_ptr<const HfWeights> weights_;
  std::optional<Quantization> form_;
};

}  // namespace heddle::checkpoint

// Makes norm modules from their description.
#include "lib/decoder/norm.h"

#include "heddle/nn/rms_norm.h"

namespace heddle::decoder {

std::unique_ptr<Module> make_norm(const Norm& norm, int64_t width, const at::TensorOptions& options) {
  if (norm.kind == Norm::Kind::layer_bare)
    return std::make_unique<LayerNorm>(width, norm.eps, false, options, /*with_weight=*/false);
  if (norm.kind == Norm::Kind::layer) return std::make_unique<LayerNorm>(width, norm.eps, norm.bias, options);
  const auto scale = norm.kind == Norm::Kind::rms        ? RmsNorm::Scale::weight
                     : norm.kind == Norm::Kind::rms_bare ? RmsNorm::Scale::none
                                                         : RmsNorm::Scale::one_plus_weight;
  return std::make_unique<RmsNorm>(width, norm.eps, options, scale);
}

}  // namespace heddle::decoder

// The section te_fp8: linear layers and experts with products in fp8, scaled by the recipes of Transformer
// Engine.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "heddle/config/schema.h"
#include "heddle/plugin/transform.h"
#include "te_products.h"

namespace heddle::fp8 {

struct TeConfig {
  std::string recipe = "current";
  bool linear = true, experts = true, emulate = false;
};

ConfigSchema<TeConfig> te_schema();

class TeFp8 : public ITransform {
 public:
  explicit TeFp8(TeConfig config) : config_(std::move(config)) {}
  Transformed apply(Units& units, const TransformRun& run) const override;

 private:
  TeConfig config_;
};

}  // namespace heddle::fp8

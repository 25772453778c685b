// Transform that freezes a model and adds adapters to its linear layers.
#pragma once

#include <string>
#include <utility>

#include "config.h"
#include "heddle/plugin/transform.h"

namespace heddle::lora {

class Lora : public ITransform {
 public:
  explicit Lora(Config config) : config_(std::move(config)) {}
  // Throws Error{config} if no layer matches, or if the adapters of experts would have rank 0.
  Transformed apply(Units& units, const TransformRun& run) const override;
  std::string setting() const override;

 private:
  Config config_;
};

}  // namespace heddle::lora

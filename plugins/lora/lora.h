// peft: freezes a model and gives its linear layers adapters.
#pragma once

#include <string>
#include <utility>

#include "config.h"
#include "heddle/plugin/transform.h"

namespace heddle::lora {

class Lora : public ITransform {
 public:
  explicit Lora(Config config) : config_(std::move(config)) {}
  // Throws Error{config}: no layer matches, or experts get the rank 0.
  Transformed apply(Units& units, const TransformRun& run) const override;
  std::string setting() const override;

 private:
  Config config_;
};

}  // namespace heddle::lora

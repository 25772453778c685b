// Transform of distillation: inserts the teacher's units before the student's.
#pragma once

#include <string>

#include "config.h"
#include "heddle/plugin/transform.h"

namespace heddle::distill {

class Distill : public ITransform {
 public:
  explicit Distill(Config config) : config_(std::move(config)) {}
  Transformed apply(Units& units, const TransformRun& run) const override;
  std::string setting() const override;

 private:
  Config config_;
};

}  // namespace heddle::distill

// A unit around another one.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/model/unit.h"

namespace heddle::model {

// Everything but forward() is the inner one's.
class WrappedUnit : public Unit, public UnitBuffers {
 public:
  explicit WrappedUnit(std::unique_ptr<Unit> unit) : unit_(std::move(unit)) {}
  std::string_view name() const override { return unit_->name(); }
  std::vector<ParameterSlot> parameters() override { return unit_->parameters(); }
  Module* module() override { return unit_->module(); }
  const TensorPlan* tensor_plan() const override { return unit_->tensor_plan(); }
  std::vector<at::Tensor> buffers() override {
    auto* with_buffers = dynamic_cast<UnitBuffers*>(unit_.get());
    return with_buffers == nullptr ? std::vector<at::Tensor>() : with_buffers->buffers();
  }

 protected:
  std::unique_ptr<Unit> unit_;
};

}  // namespace heddle::model

// A model whose gradient or loss is not finite in one step.
#pragma once

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "heddle/model/module_unit.h"
#include "plugins/training_world.h"

namespace heddle::tests {

// The number of the backward in which `value` is added to the gradient at a unit's output, or to the output.
struct BadStep {
  int step = 0, backwards_a_step = 1;
  double value = 0;
  bool is_loss = false;
};

// Counts backwards, because forwards may run again.
class BadBackward : public ModuleUnit {
 public:
  BadBackward(Unit& unit, const BadStep& bad)
      : ModuleUnit(std::move(dynamic_cast<ModuleUnit&>(unit))), bad_(bad) {}
  Tensors forward(Tensors inputs, const Batch& batch) override {
    Tensors out = ModuleUnit::forward(std::move(inputs), batch);
    const auto is_bad = [this](int backwards) { return backwards / bad_.backwards_a_step == bad_.step; };
    if (out[0].requires_grad())
      out[0].register_hook([this, is_bad](const at::Tensor& gradient) {
        return is_bad(backwards_++) && !bad_.is_loss ? gradient + bad_.value : gradient;
      });
    if (bad_.is_loss && is_bad(backwards_)) out[0] = out[0] + bad_.value;
    return out;
  }

 private:
  BadStep bad_;
  int backwards_ = 0;
};

// Applies to `rank`, or to all ranks if it is negative. unit: at most the last one.
inline Training with_bad_step(Training run, int rank, size_t unit, const BadStep& bad) {
  run.make_units = [=, model = run.model](int of) {
    Units units = make_units(model, at::TensorOptions().dtype(at::kFloat).device(at::kMeta));
    const size_t at = std::min(unit, units.size() - 1);
    if (rank < 0 || of == rank) units[at] = std::make_unique<BadBackward>(*units[at], bad);
    return units;
  };
  return run;
}

}  // namespace heddle::tests

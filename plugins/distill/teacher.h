// The teacher inside the student's sequence of units. Its units run first, and its hidden states pass through
// the student's units to the last unit, whose loss compares both heads.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "config.h"
#include "heddle/model/module_unit.h"
#include "heddle/model/side_outputs.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/token_loss.h"
#include "loss.h"

namespace heddle::distill {

inline constexpr const char* kTeacher =
    "teacher";  // prefix of the names of the teacher's units and parameters

// Unit of the teacher, which runs before the student's units: no gradients, no side outputs, no random
// numbers.
class TeacherUnit : public ModuleUnit {
 public:
  explicit TeacherUnit(ModuleUnit&& unit) : ModuleUnit(std::move(unit), kTeacher) {}
  Tensors forward(Tensors inputs, const Batch& batch) override;
};

// Unit of the student. Maps {x, teacher's hidden states} to {next x, teacher's hidden states}.
class StudentUnit : public ModuleUnit {
 public:
  explicit StudentUnit(ModuleUnit&& unit) : ModuleUnit(std::move(unit)) {}
  Tensors forward(Tensors inputs, const Batch& batch) override;
};

// Teacher's head as a child of the student's head, so that the parameters of both are gathered together. It
// has the children of the head that it owns.
class TeacherHead : public Module {
 public:
  TeacherHead(std::unique_ptr<ModuleUnit> unit, const model::LossHead& head, const Config& config);
  std::string_view kind() const override { return "teacher_head"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone, .role = Role::head}; }

  // Returns the summed loss of the student's hidden states. It replaces the student's TokenLoss.
  at::Tensor loss(const at::Tensor& hidden, Linear& head, const Batch& batch, const TokenLoss& of);

  at::Tensor hidden;  // the teacher's, for the microbatch whose loss comes next

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  std::unique_ptr<ModuleUnit> unit_;
  model::LossHead head_;
  double ratio_;
  KdLoss words_;
  HeadInput found_;  // set by the hook in the teacher's loss
  AuxiliaryLoss ce_, kd_;
};

// Last unit of the student. Takes {x, teacher's hidden states}.
class LastUnit : public ModuleUnit {
 public:
  LastUnit(ModuleUnit&& unit, std::shared_ptr<TeacherHead> teacher)
      : ModuleUnit(std::move(unit)), teacher_(std::move(teacher)) {}
  Tensors forward(Tensors inputs, const Batch& batch) override;

 private:
  std::shared_ptr<TeacherHead> teacher_;
};

}  // namespace heddle::distill

// The teacher inside the student's row of units: its units run first, and its hidden states pass through the
// student's units to the last one, whose loss compares both heads.
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

inline constexpr const char* kTeacher = "teacher";  // before the names of its units and parameters

// A unit of the teacher, before those of the student: no gradients, no side outputs, no random numbers.
class TeacherUnit : public ModuleUnit {
 public:
  explicit TeacherUnit(ModuleUnit&& unit) : ModuleUnit(std::move(unit), kTeacher) {}
  Tensors forward(Tensors inputs, const Batch& batch) override;
};

// A unit of the student: {x, teacher's hidden states} to the same of the next unit.
class StudentUnit : public ModuleUnit {
 public:
  explicit StudentUnit(ModuleUnit&& unit) : ModuleUnit(std::move(unit)) {}
  Tensors forward(Tensors inputs, const Batch& batch) override;
};

// The teacher's head as a child of the student's: the parameters of both are gathered together. Has the
// children of the head that it owns.
class TeacherHead : public Module {
 public:
  TeacherHead(std::unique_ptr<ModuleUnit> unit, const model::LossHead& head, const Config& config);
  std::string_view kind() const override { return "teacher_head"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone, .role = Role::head}; }

  // The sum of the losses of the student's hidden states, in place of its TokenLoss.
  at::Tensor loss(const at::Tensor& hidden, Linear& head, const Batch& batch, const TokenLoss& of);

  at::Tensor hidden;  // of the teacher, for the microbatch whose loss comes next

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  std::unique_ptr<ModuleUnit> unit_;
  model::LossHead head_;
  double ratio_;
  KdLoss words_;
  HeadInput found_;  // by the link at the teacher's loss
  AuxiliaryLoss ce_, kd_;
};

// The last unit of the student: takes {x, teacher's hidden states}.
class LastUnit : public ModuleUnit {
 public:
  LastUnit(ModuleUnit&& unit, std::shared_ptr<TeacherHead> teacher)
      : ModuleUnit(std::move(unit)), teacher_(std::move(teacher)) {}
  Tensors forward(Tensors inputs, const Batch& batch) override;

 private:
  std::shared_ptr<TeacherHead> teacher_;
};

}  // namespace heddle::distill

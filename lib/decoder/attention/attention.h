// Attention with grouped heads.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "heddle/decoder/description.h"
#include "heddle/nn/linear.h"
#include "lib/decoder/norm.h"

namespace heddle::decoder {

// The factors of QueryScaling for the tokens of a batch, kept for the layers after the first. Used by one
// thread.
class QueryFactors {
 public:
  explicit QueryFactors(const QueryScaling& form) : form_(form) {}
  // [tokens, 1]; table: the batch's angles, a new tensor for other positions.
  const at::Tensor& of(const Batch& batch, const at::Tensor& table, at::ScalarType dtype);
  const QueryScaling& form() const { return form_; }

 private:
  QueryScaling form_;
  at::Tensor table_, factors_;
};

// What layers share. rotary: null where nothing is rotated; queries: null where rotated queries stay.
struct Tables {
  std::shared_ptr<Rotary> rotary;
  std::shared_ptr<QueryFactors> queries;
};

// Children q_proj, k_proj, v_proj, o_proj, core and, where the description has them, g_proj, q_norm and
// k_norm.
// Slot sinks [heads], where the description has them.
class SelfAttention : public LayerPart {
 public:
  // salt: as AttentionCore takes it.
  SelfAttention(const Attention& form, int64_t width, const FirstValues& first, Tables tables, uint64_t salt,
                const at::TensorOptions& options);
  std::string_view kind() const override { return "attention"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone, .role = Role::attention}; }
  at::Tensor call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) override;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  at::Tensor heads(const at::Tensor& x, const Batch& batch);  // all but o_proj
  // q, k, v and, where it has a product of its own, the gate.
  model::FewTensors products(const at::Tensor& x, const Batch& batch);

  Tables tables_;
  int64_t gate_dim_;  // 0: the output has no gate
  OutputGate gate_;
  double value_scale_;
  double in_, out_;  // factors of the input and of the output
  Linear q_proj_, k_proj_, v_proj_, o_proj_;
  std::unique_ptr<Linear> g_proj_;  // null: no gate of its own
  std::unique_ptr<Module> q_norm_, k_norm_;
  at::Tensor sinks_;
  AttentionCore core_;
};

}  // namespace heddle::decoder

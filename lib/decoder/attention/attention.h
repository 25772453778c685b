// Attention with grouped heads.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "heddle/decoder/description.h"
#include "heddle/nn/linear.h"
#include "lib/decoder/carried/carried.h"
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

// Children q_proj, o_proj, core and, where the description has them, k_proj, v_proj, g_proj, q_norm, k_norm
// and v_norm. Slot sinks [heads], where the description has them.
class SelfAttention : public LayerPart {
 public:
  // salt: as AttentionCore takes it.
  // shared: null where no other layer has the same keys and values.
  SelfAttention(const Attention& form, int64_t width, const FirstValues& first, Tables tables,
                std::shared_ptr<SharedKeys> shared, uint64_t salt, const at::TensorOptions& options);
  std::string_view kind() const override { return "attention"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone, .role = Role::attention}; }
  at::Tensor call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) override;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  void add_keys(const Attention& form, int64_t width, const Init& init, const at::TensorOptions& options);
  at::Tensor heads(const at::Tensor& x, const Batch& batch);  // all but o_proj
  // Norms and rotations of q, k and v, and the factors of values.
  void prepare(model::FewTensors& qkv, const Batch& batch);
  // q, k, v (of keys that are values the keys; of another layer's as they are) and, where it has a product of
  // its own, the gate.
  model::FewTensors products(const at::Tensor& x, const Batch& batch);

  Tables tables_;
  int64_t gate_dim_;  // 0: the output has no gate
  OutputGate gate_;
  double value_scale_;
  double in_, out_;  // factors of the input and of the output
  double clip_;      // of q, k and v; 0: none
  std::shared_ptr<SharedKeys> shared_;
  Linear q_proj_, o_proj_;
  std::unique_ptr<Linear> k_proj_;  // null: the keys are another layer's
  std::unique_ptr<Linear> v_proj_;  // null: keys are values
  std::unique_ptr<Linear> g_proj_;  // null: no gate of its own
  std::unique_ptr<Module> q_norm_, k_norm_, v_norm_;
  at::Tensor sinks_;
  AttentionCore core_;
};

}  // namespace heddle::decoder

// Attention with grouped heads.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "heddle/decoder/description.h"
#include "heddle/nn/linear.h"
#include "lib/decoder/carried/carried.h"
#include "lib/decoder/norm.h"

namespace heddle::decoder {

// Factors of QueryScaling for the tokens of a batch, cached for all layers. Not thread-safe.
class QueryFactors {
 public:
  explicit QueryFactors(const QueryScaling& form) : form_(form) {}
  // Returns [tokens, 1]. table: the batch's angles; another tensor means other positions.
  const at::Tensor& of(const Batch& batch, const at::Tensor& table, at::ScalarType dtype);
  const QueryScaling& form() const { return form_; }

 private:
  QueryScaling form_;
  at::Tensor table_, factors_;
};

// Tables that layers share. rotary: null without rotary embedding; queries: null without query scaling.
struct Tables {
  std::shared_ptr<Rotary> rotary;
  std::shared_ptr<QueryFactors> queries;
};

// Children q_proj, o_proj, core and, if the description has them, k_proj, v_proj, g_proj, q_norm, k_norm and
// v_norm. Slot sinks [heads], if the description has sinks.
class SelfAttention : public LayerPart {
 public:
  // salt: as in AttentionCore.
  // shared: null if no other layer uses the same keys and values.
  SelfAttention(const Attention& form, int64_t width, const FirstValues& first, Tables tables,
                std::shared_ptr<SharedKeys> shared, uint64_t salt, const at::TensorOptions& options);
  std::string_view kind() const override { return "attention"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone, .role = Role::attention}; }
  at::Tensor call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) override;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  void add_keys(const Attention& form, int64_t width, const Init& init, const at::TensorOptions& options);
  at::Tensor heads(const at::Tensor& x, const Batch& batch);  // everything but o_proj
  // Applies norms and rotations to q, k and v, and scales the values.
  void prepare(model::FewTensors& qkv, const Batch& batch);
  // Returns q, k, v and, if it has its own projection, the gate. If keys are values, v is k; keys of another
  // layer are returned unchanged.
  model::FewTensors products(const at::Tensor& x, const Batch& batch);

  Tables tables_;
  int64_t gate_dim_;  // 0: no gate
  OutputGate gate_;
  double value_scale_;
  double in_, out_;  // factors of input and output
  double clip_;      // bound of q, k and v; 0: no bound
  std::shared_ptr<SharedKeys> shared_;
  Linear q_proj_, o_proj_;
  std::unique_ptr<Linear> k_proj_;  // null: the keys are another layer's
  std::unique_ptr<Linear> v_proj_;  // null: keys are values
  std::unique_ptr<Linear> g_proj_;  // null: no separate gate projection
  std::unique_ptr<Module> q_norm_, k_norm_, v_norm_;
  at::Tensor sinks_;
  AttentionCore core_;
};

}  // namespace heddle::decoder

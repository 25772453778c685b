// What mixers with short convolutions and a state of each head share: the state, kept for generation, and the
// projection behind the heads.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <string>

#include "heddle/decoder/description.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/sequence_core.h"
#include "lib/decoder/recurrence/short_convolution.h"

namespace heddle::decoder {

// What a mixer knows of the tokens before; undefined: no token yet.
class RecurrentState : public MixerState {
 public:
  void clear() override;

  std::array<at::Tensor, 3> inputs;  // of each convolution, [taps - 1, channels]
  at::Tensor heads;                  // the mixer's own form
};

class RecurrentMixer : public Mixer {
 public:
  std::unique_ptr<MixerState> keep_state() override;
  at::Tensor call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) override;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;
  // All but the last projection; x and the result [tokens, channels].
  virtual at::Tensor heads(const at::Tensor& x, const Batch& batch) = 0;
  virtual Linear& last_projection() = 0;

  // Whole rows, as a sequence core gets them. Throws Error{internal} where a state is kept and the batch is
  // not one sequence.
  TokenRows rows_of(const Batch& batch, const std::string& mixer) const;
  // Convolution number `which`, continued where a state is kept. bias undefined: none.
  at::Tensor convolved(size_t which, const at::Tensor& x, const at::Tensor& weight, const TokenRows& tokens,
                       const at::Tensor& bias = {});
  at::Tensor* state_of_heads() { return state_ == nullptr ? nullptr : &state_->heads; }
  void add_parameter(const std::string& name, at::Tensor& tensor, at::IntArrayRef shape, const Init& init,
                     const at::TensorOptions& options);

  double output_multiplier_ = 1;

 private:
  RecurrentState* state_ = nullptr;  // null: each forward begins anew
};

}  // namespace heddle::decoder

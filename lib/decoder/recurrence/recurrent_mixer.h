// Base of mixers with short convolutions and a state per head: the state kept for generation, and the output
// projection.
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

// State after the earlier tokens; undefined: no tokens yet.
class RecurrentState : public MixerState {
 public:
  void clear() override;

  std::array<at::Tensor, 3> inputs;  // last inputs of each convolution, [taps - 1, channels]
  at::Tensor heads;                  // in the mixer's own layout
};

class RecurrentMixer : public Mixer {
 public:
  std::unique_ptr<MixerState> keep_state() override;
  at::Tensor call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) override;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;
  // Computes everything but the output projection; x and the result are [tokens, channels].
  virtual at::Tensor heads(const at::Tensor& x, const Batch& batch) = 0;
  virtual Linear& last_projection() = 0;

  // Returns whole rows as a sequence core gets them. Throws Error{internal} if a state is kept and the batch
  // is not a single sequence.
  TokenRows rows_of(const Batch& batch, const std::string& mixer) const;
  // Applies convolution number `which`, continued from the kept state if any. bias undefined: none.
  at::Tensor convolved(size_t which, const at::Tensor& x, const at::Tensor& weight, const TokenRows& tokens,
                       const at::Tensor& bias = {});
  at::Tensor* state_of_heads() { return state_ == nullptr ? nullptr : &state_->heads; }
  void add_parameter(const std::string& name, at::Tensor& tensor, at::IntArrayRef shape, const Init& init,
                     const at::TensorOptions& options);

  double output_multiplier_ = 1;

 private:
  RecurrentState* state_ = nullptr;  // null: no state is kept between forwards
};

}  // namespace heddle::decoder

// State handling of recurrent mixers, and the calls around the heads.
#include "lib/decoder/recurrence/recurrent_mixer.h"

#include <ATen/TensorOperators.h>

#include <utility>

#include "core/model/parameter.h"
#include "heddle/base/error.h"
#include "lib/decoder/norm.h"

namespace heddle::decoder {

void RecurrentState::clear() {
  for (at::Tensor& one : inputs) one.reset();
  heads.reset();
}

std::unique_ptr<MixerState> RecurrentMixer::keep_state() {
  auto state = std::make_unique<RecurrentState>();
  state_ = state.get();
  return state;
}

at::Tensor RecurrentMixer::forward(at::Tensor x, const Batch& batch) {
  return times(last_projection().call(heads(x, batch), batch), output_multiplier_);
}

at::Tensor RecurrentMixer::call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) {
  if (!output.empty() || output_multiplier_ != 1) return residual + call(std::move(x), batch);
  return last_projection().call_onto(residual, heads(input(std::move(x), batch), batch), batch);
}

TokenRows RecurrentMixer::rows_of(const Batch& batch, const std::string& mixer) const {
  const TokenRows tokens{batch.tokens.size(0), whole_sequence_of(batch), batch.documents};
  if (state_ != nullptr && (tokens.rows != 1 || tokens.documents.defined()))
    throw Error(ErrorCode::internal, "generate", mixer + " keeps the state of one sequence",
                "use batches of one row without documents");
  return tokens;
}

at::Tensor RecurrentMixer::convolved(size_t which, const at::Tensor& x, const at::Tensor& weight,
                                     const TokenRows& tokens, const at::Tensor& bias) {
  if (state_ == nullptr) return short_convolution(x, weight, tokens, bias);
  return continued_convolution(x, weight, state_->inputs[which], bias);
}

void RecurrentMixer::add_parameter(const std::string& name, at::Tensor& tensor, at::IntArrayRef shape,
                                   const Init& init, const at::TensorOptions& options) {
  tensor = model::make_parameter(shape, init, options);
  add_slot(name, tensor, init);
}

}  // namespace heddle::decoder

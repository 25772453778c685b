// The parameters of hyper-connections, and a module between the streams.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "heddle/decoder/description.h"
#include "heddle/model/module.h"

namespace heddle::decoder {

// Slots fn [weights, streams * width], base [weights] and scale [3], or [1] for the last weights of a model.
class HyperConnection : public Module {
 public:
  enum class Place { of_layer, last };
  // Of the last weights the slots' names begin with "hc_", as in transformers.
  HyperConnection(const Model& model, Place place, const at::TensorOptions& options);
  std::string_view kind() const override { return "hyper_connection"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }

  // x [tokens, streams * width] to the sum of the streams, [tokens, width].
  at::Tensor collapsed(const at::Tensor& x, const Batch& batch);
  // The streams after `part`, a function of the sum: of the same shape as x.
  at::Tensor around(const at::Tensor& x, const Batch& batch,
                    const std::function<at::Tensor(at::Tensor)>& part);

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // the weights (hyper_connection.h)

 private:
  void add(const std::string& name, at::Tensor& slot, at::IntArrayRef shape, const Init& init,
           const at::TensorOptions& options);

  HyperConnections form_;
  at::Tensor fn_, base_, scale_;
};

// Throws Error{config} where a model with several streams has what is built for one.
void check_streams(const Model& model);

}  // namespace heddle::decoder

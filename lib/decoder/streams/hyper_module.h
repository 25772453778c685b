// Parameters of hyper-connections, and the module that wraps a part of a layer.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "heddle/decoder/description.h"
#include "heddle/model/module.h"

namespace heddle::decoder {

// Slots fn [weights, streams * width], base [weights] and scale [3], or [1] at the end of a model.
class HyperConnection : public Module {
 public:
  enum class Place { of_layer, last };
  // The slots at the end of a model have the prefix "hc_", as in transformers.
  HyperConnection(const Model& model, Place place, const at::TensorOptions& options);
  std::string_view kind() const override { return "hyper_connection"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }

  // Returns the sum of the streams, [tokens, width], of x [tokens, streams * width].
  at::Tensor collapsed(const at::Tensor& x, const Batch& batch);
  // Returns the streams after `part`, a function of their sum, in the shape of x.
  at::Tensor around(const at::Tensor& x, const Batch& batch,
                    const std::function<at::Tensor(at::Tensor)>& part);

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // returns the weights (hyper_connection.h)

 private:
  void add(const std::string& name, at::Tensor& slot, at::IntArrayRef shape, const Init& init,
           const at::TensorOptions& options);

  HyperConnections form_;
  at::Tensor fn_, base_, scale_;
};

// Throws Error{config} if a model with several streams has a feature that is built for one stream only.
void check_streams(const Model& model);

}  // namespace heddle::decoder

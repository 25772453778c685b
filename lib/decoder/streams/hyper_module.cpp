// Parameters of hyper-connections, and the module that wraps a part of a layer.
#include "lib/decoder/streams/hyper_module.h"

#include <utility>

#include "core/model/parameter.h"
#include "heddle/base/error.h"
#include "lib/decoder/norm.h"
#include "lib/decoder/streams/hyper_connection.h"

namespace heddle::decoder {
namespace {

const Init kZeros{Init::Kind::zeros, 0.0}, kOnes{Init::Kind::ones, 0.0};

}  // namespace

HyperConnection::HyperConnection(const Model& model, Place place, const at::TensorOptions& options)
    : form_(*model.hyper_connections) {
  const bool last = place == Place::last;
  const int64_t n = form_.streams, weights = last ? n : n * (2 + n);
  const std::string prefix = last ? "hc_" : "";
  add(prefix + "fn", fn_, {weights, n * model.width}, normal(model.init_std), options);
  add(prefix + "base", base_, {weights}, kZeros, options);
  add(prefix + "scale", scale_, {last ? 1 : 3}, kOnes, options);
}

void HyperConnection::add(const std::string& name, at::Tensor& slot, at::IntArrayRef shape, const Init& init,
                          const at::TensorOptions& options) {
  const auto wide = options.dtype() == at::kDouble ? at::kDouble : at::kFloat;
  slot = model::make_parameter(shape, init, options.dtype(wide));
  add_slot(name, slot, init);
  slots().back().compute = wide;
}

at::Tensor HyperConnection::forward(at::Tensor x, const Batch&) {
  return hyper_weights(x, fn_, base_, scale_, form_);
}

at::Tensor HyperConnection::collapsed(const at::Tensor& x, const Batch& batch) {
  return hyper_collapsed(x, call(x, batch), form_.streams);
}

at::Tensor HyperConnection::around(const at::Tensor& x, const Batch& batch,
                                   const std::function<at::Tensor(at::Tensor)>& part) {
  const at::Tensor weights = call(x, batch);
  const at::Tensor y = part(hyper_collapsed(x, weights, form_.streams));
  return hyper_expanded(x, y, weights, form_.streams);
}

void check_streams(const Model& model) {
  if (!model.hyper_connections) return;
  const auto refuse = [](const std::string& what, const std::string& hint) {
    throw Error(ErrorCode::config, "model", "a model with hyper-connections " + what, hint);
  };
  const HyperConnections& form = *model.hyper_connections;
  if (form.streams < 1 || form.iterations < 1)
    refuse("has " + std::to_string(form.streams) + " streams and " + std::to_string(form.iterations) +
               " iterations",
           "use at least 1 stream and 1 iteration");
  if (model.mtp.tokens > 0 || model.layer_inputs.width > 0)
    refuse("has multi-token prediction heads or per-layer inputs, which are built for one stream",
           "remove Model::mtp and Model::layer_inputs");
  for (size_t i = 0; i < model.layers.size(); ++i)
    if (model.layers[i].order == Layer::Order::side_by_side || model.layers[i].experts_beside)
      refuse("has a parallel mixer and MLP, or parallel MLP and experts, in layer " + std::to_string(i),
             "use Layer::Order::before, after or both, without Layer::experts_beside");
}

}  // namespace heddle::decoder

// Module of a sum over blocks, and checks of models with block residuals.
#include "lib/decoder/blocks/block_residual.h"

#include <string>
#include <utility>

#include "core/model/parameter.h"
#include "heddle/base/error.h"
#include "lib/decoder/blocks/block_mix.h"
#include "lib/decoder/norm.h"

namespace heddle::decoder {

BlockResidual::BlockResidual(const Model& model, bool trains, const at::TensorOptions& options)
    : eps_(model.block_residuals->eps) {
  const Init ones{Init::Kind::ones, 0.0};
  norm_ = model::make_parameter({model.width}, ones, options);
  proj_ = model::make_parameter({1, model.width}, normal(model.init_std), options);
  for (at::Tensor* one : {&norm_, &proj_}) one->set_requires_grad(trains);
  add_slot("norm.weight", norm_, ones);
  add_slot("proj.weight", proj_, normal(model.init_std));
}

at::Tensor BlockResidual::of(const at::Tensor& x, const std::vector<at::Tensor>& blocks, const Batch& batch) {
  std::vector<at::Tensor> values = blocks;
  values.push_back(input(x, batch));
  return output(block_mix(values, norm_, proj_, eps_), batch);
}

at::Tensor BlockResidual::forward(at::Tensor, const Batch&) {
  throw Error(ErrorCode::internal, "model", "a sum over blocks takes several tensors, but call() was used",
              "use of()");
}

void check_blocks(const Model& model) {
  if (!model.block_residuals) return;
  const auto refuse = [](const std::string& what, const std::string& hint) {
    throw Error(ErrorCode::config, "model", "a model with block residuals " + what, hint);
  };
  if (model.block_residuals->size < 1)
    refuse("has blocks of " + std::to_string(model.block_residuals->size) + " layers",
           "set BlockResiduals::size to at least 1");
  if (model.hyper_connections || model.mtp.tokens > 0 || model.layer_inputs.width > 0)
    refuse(
        "has several streams, multi-token prediction heads or per-layer inputs, which are built for one "
        "sum",
        "remove Model::hyper_connections, mtp and layer_inputs");
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const Layer& layer = model.layers[i];
    if (layer.order != Layer::Order::before || std::holds_alternative<Absent>(layer.mixer) ||
        std::holds_alternative<Absent>(layer.feed_forward))
      refuse("has layer " + std::to_string(i) +
                 " without mixer, without MLP or with an order of norms other than before",
             "give each layer a mixer, an MLP and Layer::Order::before");
  }
}

}  // namespace heddle::decoder

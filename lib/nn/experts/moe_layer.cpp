// The layer: what is shared is computed while the tokens travel, where somebody moves them.
#include "heddle/nn/experts.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/sigmoid.h>

#include <utility>

#include "heddle/model/autograd_node.h"

namespace heddle {
namespace {

// y [tokens, width] times sigmoid(logits [tokens, 1]). Edges: y, the logits.
struct GatedNode final : model::LayerNode {
  GatedNode() : LayerNode("SharedGateBackward") {}
  model::Saved y, logits;

  model::Gradients backward(model::Gradients&& gradients) override {
    const at::Tensor given = y.unpack(), gate = at::sigmoid(logits.unpack());
    const at::Tensor d_gate = (gradients[0] * given).sum(1, true);
    return {gradients[0] * gate, d_gate * gate * (1 - gate)};
  }
  void release_variables() override {
    y.reset();
    logits.reset();
  }
};

at::Tensor gated(const at::Tensor& y, const at::Tensor& logits) {
  return model::forward_with<GatedNode>(
      [&](GatedNode& node) {
        node.y.save(y);
        node.logits.save(logits);
      },
      [&] { return y * at::sigmoid(logits); }, y, logits);
}

}  // namespace

MoeLayer::MoeLayer(const RouterConfig& router, const Experts::Shape& experts, const Experts::Names& names,
                   const Init& init, const at::TensorOptions& options)
    : gate_(router, init, options), experts_(experts, names, init, options) {
  add_child("gate", gate_);
  add_child("experts", experts_);
}

void MoeLayer::add_shared(std::string name, std::unique_ptr<Module> shared) {
  shared_ = std::move(shared);
  add_child(std::move(name), *shared_);
}

void MoeLayer::add_shared_gate(std::string name, const Init& init, const at::TensorOptions& options) {
  shared_gate_ = std::make_unique<Linear>(gate_.config().hidden, 1, Linear::Bias::none, init, options);
  add_child(std::move(name), *shared_gate_);
}

void MoeLayer::add_latent(std::array<std::string, 2> names, const Init& init,
                          const at::TensorOptions& options) {
  const int64_t hidden = gate_.config().hidden, latent = experts_.shape().hidden;
  to_latent_ = std::make_unique<Linear>(hidden, latent, Linear::Bias::none, init, options);
  from_latent_ = std::make_unique<Linear>(latent, hidden, Linear::Bias::none, init, options);
  add_child(std::move(names[0]), *to_latent_);
  add_child(std::move(names[1]), *from_latent_);
}

void MoeLayer::add_latent_norm(std::string name, std::unique_ptr<Module> norm) {
  latent_norm_ = std::move(norm);
  add_child(std::move(name), *latent_norm_);
}

void MoeLayer::add_norm(std::string name, std::unique_ptr<Module> norm) {
  norm_ = std::move(norm);
  add_child(std::move(name), *norm_);
}

at::Tensor MoeLayer::of_experts(const at::Tensor& x, const model::Routing& routing, const Batch& batch,
                                model::Meanwhile& meanwhile) {
  if (!to_latent_) return experts_.run(x, routing, batch, meanwhile);
  at::Tensor y = experts_.run(to_latent_->call(x, batch), routing, batch, meanwhile);
  if (latent_norm_) y = latent_norm_->call(std::move(y), batch);
  return from_latent_->call(y, batch);
}

at::Tensor MoeLayer::of_shared(const at::Tensor& x, const Batch& batch) {
  const at::Tensor y = shared_->call(x, batch);
  return shared_gate_ ? gated(y, shared_gate_->call(x, batch)) : y;
}

at::Tensor MoeLayer::forward(at::Tensor x, const Batch& batch) {
  const RouterConfig& router = gate_.config();
  if (router.jitter != 0 && at::GradMode::is_enabled())
    x = model::jittered(x, router.jitter, router.layer, batch);
  const model::Routing routing = gate_.route(x, batch);
  if (norm_) x = norm_->call(std::move(x), batch);
  at::Tensor shared;
  model::Meanwhile meanwhile([&] {
    if (shared_) shared = of_shared(x, batch);
  });
  const at::Tensor y = of_experts(x, routing, batch, meanwhile);
  meanwhile.run();
  return shared_ ? y + shared : y;
}

}  // namespace heddle

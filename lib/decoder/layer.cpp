// Decoder layer with Hugging Face's parameter names.
#include "lib/decoder/layer.h"

#include <ATen/TensorOperators.h>

#include <utility>

#include "core/model/parameter.h"
#include "heddle/model/autograd_node.h"
#include "lib/decoder/norm.h"

namespace heddle::decoder {
namespace {

using Order = Layer::Order;
using Names = std::array<const char*, 2>;

Names norms_of_mixer(Order order) {
  switch (order) {
    case Order::before:
    case Order::side_by_side:
      return {"input_layernorm", nullptr};
    case Order::after:
      return {nullptr, "post_attention_layernorm"};
    case Order::both:
      return {"input_layernorm", "post_attention_layernorm"};
  }
  return {};
}

Names norms_of_feed_forward(Order order) {
  switch (order) {
    case Order::before:
      return {"post_attention_layernorm", nullptr};
    case Order::side_by_side:
      return {};
    case Order::after:
      return {nullptr, "post_feedforward_layernorm"};
    case Order::both:
      return {"pre_feedforward_layernorm", "post_feedforward_layernorm"};
  }
  return {};
}

// Edge: x. The scalar does not train.
struct ScalarNode final : model::LayerNode {
  ScalarNode() : LayerNode("LayerScalarBackward") {}
  model::Saved scalar;

  model::Gradients backward(model::Gradients&& gradients) override {
    return {gradients[0] * scalar.unpack()};
  }
  void release_variables() override { scalar.reset(); }
};

at::Tensor times_scalar(const at::Tensor& x, const at::Tensor& scalar) {
  return model::forward_with<ScalarNode>([&](ScalarNode& node) { node.scalar.save_weight(scalar); },
                                         [&] { return x * scalar; }, x);
}

}  // namespace

DecoderLayer::DecoderLayer(const Layer& form, int64_t width, Parts parts, const at::TensorOptions& options)
    : multiplier_(form.residual_multiplier),
      side_by_side_(form.order == Order::side_by_side && parts.mixer && parts.feed_forward),
      parts_(std::move(parts)) {
  mixer_.module = mixer_.part = parts_.mixer.get();
  for (const auto& [name, part] : parts_.beside) mixer_.beside.push_back(part.get());
  feed_forward_.module = parts_.feed_forward.get();
  feed_forward_.part = dynamic_cast<LayerPart*>(feed_forward_.module);
  const Names first = norms_of_mixer(form.order);
  Names second = norms_of_feed_forward(form.order);
  if (form.order == Order::side_by_side && !side_by_side_) second = first;
  make_step(mixer_, form, first, width, options);
  make_step(feed_forward_, form, second, width, options);
  const auto add = [&](const char* name, const std::unique_ptr<Module>& norm) {
    if (norm) add_child(name, *norm);
  };
  add(first[0], mixer_.before);
  if (mixer_.module != nullptr) add_child(parts_.mixer_name, *mixer_.module);
  for (const auto& [name, part] : parts_.beside) add_child(name, *part);
  add(first[1], mixer_.after);
  add(second[0], feed_forward_.before);
  if (feed_forward_.module != nullptr) add_child("mlp", *feed_forward_.module);
  add(second[1], feed_forward_.after);
  if (parts_.experts) add_experts(form, width, options);
  add_streams();
  if (parts_.attn_res) add_child("attn_res", *parts_.attn_res);
  if (parts_.mlp_res) add_child("mlp_res", *parts_.mlp_res);
  if (parts_.input) add_child("layer_input", *parts_.input);
  if (form.residual_dropout > 0) add_dropout(form.residual_dropout);
  if (!form.scalar) return;
  const Init ones{Init::Kind::ones, 0.0};
  scalar_ = model::make_parameter({1}, ones, options);
  scalar_.set_requires_grad(false);
  add_slot("layer_scalar", scalar_, ones);
}

void DecoderLayer::add_experts(const Layer& form, int64_t width, const at::TensorOptions& options) {
  feed_forward_.experts = parts_.experts.get();
  feed_forward_.after_module = make_norm(form.norm, width, options);
  feed_forward_.after_experts = make_norm(form.norm, width, options);
  add_child(parts_.experts_name, *parts_.experts);
  add_child("post_feedforward_layernorm_1", *feed_forward_.after_module);
  add_child("post_feedforward_layernorm_2", *feed_forward_.after_experts);
}

void DecoderLayer::add_streams() {
  const auto add = [&](const char* name, Step& step, const std::unique_ptr<HyperConnection>& streams) {
    if (!streams || step.module == nullptr) return;
    step.streams = streams.get();
    add_child(name, *streams);
  };
  add("attn_hc", mixer_, parts_.attn_hc);
  add("ffn_hc", feed_forward_, parts_.ffn_hc);
}

void DecoderLayer::add_dropout(double p) {
  const auto add = [&](Step& step, const char* name) {
    if (step.module == nullptr) return;
    step.dropout = std::make_unique<Dropout>(p, parts_.layer + "." + name);
    add_child(name, *step.dropout);
  };
  add(mixer_, "mixer_dropout");
  add(feed_forward_, "mlp_dropout");
}

void DecoderLayer::make_step(Step& step, const Layer& form, Names norms, int64_t width,
                             const at::TensorOptions& options) {
  if (step.module == nullptr) return;
  if (norms[0] != nullptr) step.before = make_norm(form.norm, width, options);
  if (norms[1] != nullptr) step.after = make_norm(form.norm_after.value_or(form.norm), width, options);
}

at::Tensor DecoderLayer::onto(const at::Tensor& residual, Step& step, at::Tensor x, const Batch& batch) {
  const bool adds_itself = step.part != nullptr && !step.after && !step.dropout && multiplier_ == 1;
  if (!adds_itself) return residual + output(residual, step, std::move(x), batch);
  const at::Tensor same = step.beside.empty() ? at::Tensor() : x;  // otherwise only the first part needs it
  at::Tensor y = step.part->call_onto(residual, std::move(x), batch);
  for (LayerPart* part : step.beside) y = part->call_onto(y, same, batch);
  return y;
}

at::Tensor DecoderLayer::output(const at::Tensor& residual, Step& step, at::Tensor x, const Batch& batch) {
  const at::Tensor same = step.beside.empty() ? at::Tensor() : x;
  at::Tensor y = step.module->call(std::move(x), batch);
  for (LayerPart* part : step.beside) y = part->call_onto(y, same, batch);
  if (step.experts != nullptr) {
    y = step.after_module->call(std::move(y), batch);
    y = y + step.after_experts->call(step.experts->call(residual, batch), batch);
  }
  if (step.after) y = step.after->call(std::move(y), batch);
  if (step.dropout) y = step.dropout->call(std::move(y), batch);
  return multiplier_ == 1 ? y : y * multiplier_;
}

at::Tensor DecoderLayer::run_in_streams(Step& step, const at::Tensor& x, const Batch& batch) {
  return step.streams->around(x, batch, [&](const at::Tensor& sum) {
    return output(sum, step, step.before ? step.before->call(sum, batch) : sum, batch);
  });
}

at::Tensor DecoderLayer::run_in_blocks(const at::Tensor& x, const Batch& batch) {
  std::vector<at::Tensor>& blocks = parts_.carried.blocks;
  at::Tensor sum = blocks.empty() ? x : parts_.attn_res->of(x, blocks, batch);
  at::Tensor normal = mixer_.before->call(std::move(sum), batch);
  at::Tensor y;
  if (parts_.begins_block) {
    blocks.push_back(x);
    y = output(x, mixer_, std::move(normal), batch);
  } else {
    y = onto(x, mixer_, std::move(normal), batch);
  }
  normal = feed_forward_.before->call(parts_.mlp_res->of(y, blocks, batch), batch);
  return onto(y, feed_forward_, std::move(normal), batch);
}

at::Tensor DecoderLayer::run(Step& step, at::Tensor x, const Batch& batch) {
  if (step.module == nullptr) return x;
  if (step.streams != nullptr) return run_in_streams(step, x, batch);
  at::Tensor normal = step.before ? step.before->call(x, batch) : x;
  return onto(x, step, std::move(normal), batch);
}

at::Tensor DecoderLayer::parts(at::Tensor x, const Batch& batch) {
  if (parts_.mlp_res) return run_in_blocks(x, batch);
  if (!side_by_side_) return run(feed_forward_, run(mixer_, std::move(x), batch), batch);
  const at::Tensor normal = mixer_.before->call(x, batch);
  return onto(onto(x, mixer_, normal, batch), feed_forward_, normal, batch);
}

at::Tensor DecoderLayer::forward(at::Tensor x, const Batch& batch) {
  at::Tensor y = parts(std::move(x), batch);
  if (parts_.input) y = parts_.input->onto(y, parts_.carried.own_inputs, batch);
  return scalar_.defined() ? times_scalar(y, scalar_) : y;
}

}  // namespace heddle::decoder

// Batched product with one matrix per block.
#include "lib/decoder/compressed/block_product.h"

#include <ATen/ops/bmm.h>

#include "core/model/parameter.h"
#include "heddle/model/autograd_node.h"
#include "heddle/nn/attention_layout.h"

namespace heddle::decoder {
namespace {

using model::Gradients;

// Returns [tokens, blocks * columns] as [blocks, tokens, columns].
at::Tensor by_block(const at::Tensor& x, int64_t blocks) {
  return x.reshape({x.size(0), blocks, -1}).transpose(0, 1);
}

at::Tensor by_token(const at::Tensor& x) {
  return x.transpose(0, 1).reshape({x.size(1), -1});
}

// Edges: x, weight. Both are kept in the dtype of the product.
struct BlockProductNode final : model::LayerNode {
  BlockProductNode() : LayerNode("BlockProductBackward") {}
  model::Saved x, weight;
  int64_t blocks = 1;
  at::ScalarType of_x = at::kFloat, of_weight = at::kFloat;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor w = weight.unpack().to(gradients[0].scalar_type());
    const at::Tensor d = by_block(gradients[0], blocks), in = by_block(x.unpack(), blocks);
    Gradients out(2);
    if (task_should_compute_output(0))
      out[0] = by_token(at::bmm(d, w.view({blocks, -1, w.size(1)}))).to(of_x);
    if (task_should_compute_output(1))
      out[1] = at::bmm(d.transpose(1, 2), in).reshape(w.sizes()).to(of_weight);
    return out;
  }
  void release_variables() override {
    x.reset();
    weight.reset();
  }
};

}  // namespace

at::Tensor block_product(const at::Tensor& x, const at::Tensor& weight, int64_t blocks) {
  const at::Tensor in = model::under_autocast(x);
  const auto save = [&](BlockProductNode& node) {
    node.x.save(in);
    node.weight.save_weight(weight);
    node.blocks = blocks;
    node.of_x = x.scalar_type();
    node.of_weight = weight.scalar_type();
  };
  const auto compute = [&] {
    return model::once(model::Operator::product, [&] {
      const at::Tensor w = weight.to(in.scalar_type()).view({blocks, -1, weight.size(1)});
      return by_token(at::bmm(by_block(in, blocks), w.transpose(1, 2)));
    });
  };
  return model::forward_with<BlockProductNode>(save, compute, x, weight);
}

BlockLinear::BlockLinear(int64_t blocks, int64_t in, int64_t out, const Init& init,
                         const at::TensorOptions& options)
    : blocks_(blocks), weight_(model::make_parameter({blocks * out, in}, init, options)) {
  add_slot("weight", weight_, init);
}

at::Tensor BlockLinear::forward(at::Tensor x, const Batch&) {
  return block_product(x, weight_, blocks_);
}

}  // namespace heddle::decoder

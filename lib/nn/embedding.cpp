// The look-up and its node: gradients of equal tokens are added into one row.
#include "heddle/nn/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <string>

#include "core/model/parameter.h"
#include "heddle/base/error.h"
#include "heddle/model/autograd_node.h"
#include "heddle/ops/compute_log.h"

namespace heddle {
namespace model {
namespace {

// LibTorch's take no meta tensors. flat: the token of each row.
void record_copies(const char* name, const at::Tensor& flat, const at::Tensor& rows, const at::Tensor& out) {
  const auto bytes = [](const at::Tensor& x) { return static_cast<double>(x.nbytes()); };
  record_operator(name, {static_cast<double>(rows.numel()), bytes(flat) + bytes(rows), bytes(out)});
}

struct EmbeddingNode final : LayerNode {
  EmbeddingNode() : LayerNode("EmbeddingBackward") {}
  Saved tokens;  // flat
  int64_t rows = 0, padding = -1;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor& dy = gradients[0];
    if (dy.is_meta()) {
      const at::Tensor dw = at::empty({rows, dy.size(-1)}, dy.options());
      record_copies("heddle::embedding_backward", tokens.unpack(), dy, dw);
      return {dw};
    }
    return {at::embedding_dense_backward(dy, tokens.unpack(), rows, padding, false)};
  }
  void release_variables() override { tokens.reset(); }
};

void check_tokens(const at::Tensor& flat, int64_t vocabulary) {
  const int64_t* token = flat.const_data_ptr<int64_t>();
  for (const int64_t* end = token + flat.numel(); token != end; ++token)
    if (*token < 0 || *token >= vocabulary)
      throw Error(
          ErrorCode::input, "embedding",
          "token " + std::to_string(*token) + " is outside the vocabulary of " + std::to_string(vocabulary),
          "use a token file and a model of the same tokenizer");
}

at::Tensor rows_on_meta(const at::Tensor& flat, const at::Tensor& weight) {
  const at::Tensor y = at::empty({flat.numel(), weight.size(1)}, weight.options());
  record_copies("heddle::embedding", flat, y, y);
  return y;
}

at::Tensor look_up(const at::Tensor& flat, const at::Tensor& weight) {
  if (weight.is_meta()) return rows_on_meta(flat, weight);
  if (flat.is_cpu()) check_tokens(flat, weight.size(0));
  return at::index_select(weight, 0, flat);
}

at::Tensor part_of_look_up(const at::Tensor& local, const at::Tensor& outside, const at::Tensor& weight) {
  if (weight.is_meta()) return rows_on_meta(local, weight);
  return at::index_select(weight, 0, local).masked_fill_(outside, 0);
}

at::Tensor recorded(at::Tensor y, const at::Tensor& flat, const at::Tensor& weight, int64_t padding) {
  if (!torch::autograd::compute_requires_grad(weight)) return y;
  auto node = make_node<EmbeddingNode>(weight);
  node->tokens.save(flat);
  node->rows = weight.size(0);
  node->padding = padding;
  torch::autograd::set_history(y, node);
  return y;
}

}  // namespace

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight, int64_t padding) {
  at::Tensor y, flat;
  {
    const BelowAutograd below;
    flat = tokens.reshape({-1});
    y = look_up(flat, weight);
  }
  return recorded(std::move(y), flat, weight, padding);
}

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight, int64_t padding,
                     const RowRange& rows) {
  const int64_t held = weight.size(0);
  at::Tensor y, local;
  {
    const BelowAutograd below;
    const at::Tensor flat = tokens.reshape({-1});
    if (flat.is_cpu()) check_tokens(flat, rows.whole);
    local = flat - rows.first;
    const at::Tensor outside = local.lt(0).bitwise_or_(local.ge(held));
    y = part_of_look_up(local.masked_fill(outside, 0), outside.unsqueeze(1), weight);
    // `held` marks rows of other ranks: they get no gradient, and neither does the padding.
    local.masked_fill_(outside.bitwise_or_(flat.eq(padding)), held);
  }
  return recorded(std::move(y), local, weight, held);
}

}  // namespace model

namespace {

double rounded(double value, at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return static_cast<double>(c10::BFloat16(static_cast<float>(value)));
  if (dtype == at::kHalf) return static_cast<double>(c10::Half(static_cast<float>(value)));
  return value;
}

}  // namespace

Embedding::Embedding(int64_t vocabulary, int64_t width, int64_t padding, const Init& init,
                     const at::TensorOptions& options, double multiplier)
    : weight(model::make_parameter({vocabulary, width}, init, options)),
      padding_(padding),
      multiplier_(multiplier) {
  add_slot("weight", weight, init);
}

at::Tensor Embedding::forward(at::Tensor tokens, const Batch&) {
  const at::Tensor y =
      rows ? model::embedding(tokens, weight, padding_, *rows) : model::embedding(tokens, weight, padding_);
  return multiplier_ == 1 ? y : y * rounded(multiplier_, y.scalar_type());
}

}  // namespace heddle

// Autograd node of the convolution: a sum of shifted rows, which the backward recomputes.
#include "lib/decoder/recurrence/short_convolution.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "heddle/model/autograd_node.h"
#include "lib/decoder/recurrence/document_marks.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {
namespace {

using model::accumulation_dtype;
using model::BelowAutograd;
using model::Gradients;

// Shifted rows in the accumulation dtype.
class Shifts {
 public:
  Shifts(const at::Tensor& x, const at::Tensor& weight, const TokenRows& tokens, const at::Tensor& bias)
      : wide_(accumulation_dtype(x.scalar_type())),
        rows_(x.reshape({tokens.rows, tokens.sequence, x.size(1)}).to(wide_)),
        taps_(weight.select(1, 0).to(wide_).t().contiguous()) {
    if (bias.defined()) bias_ = bias.to(wide_);
    if (tokens.documents.defined())
      place_ = marks_of(tokens.documents, tokens.rows, tokens.sequence, x.options()).place;
  }
  at::Tensor sum() const {
    at::Tensor out = rows_ * tap(0);
    for (int64_t back = 1; back < reach(); ++back)
      out.narrow(1, back, length() - back).addcmul_(earlier(back), tap(back));
    if (bias_.defined()) out.add_(bias_);
    return out;
  }
  // d: gradient of the sum.
  at::Tensor gradient_of_rows(const at::Tensor& d) const {
    at::Tensor out = d * tap(0);
    for (int64_t back = 1; back < reach(); ++back) {
      const at::Tensor later = d.narrow(1, back, length() - back);
      out.narrow(1, 0, length() - back).addcmul_(place_.defined() ? later * seen(back) : later, tap(back));
    }
    return out;
  }
  // Returns [channels, 1, taps].
  at::Tensor gradient_of_weight(const at::Tensor& d) const {
    std::vector<at::Tensor> of_taps(static_cast<size_t>(taps_.size(0)));
    for (int64_t back = 0; back < taps_.size(0); ++back) {
      at::Tensor& one = of_taps[static_cast<size_t>(taps_.size(0) - 1 - back)];
      if (back < reach())
        one = (d.narrow(1, back, length() - back) * earlier(back)).sum(at::IntArrayRef{0, 1});
      else
        one = at::zeros({d.size(2)}, d.options());
    }
    return at::stack(of_taps, 1).unsqueeze(1);
  }
  at::ScalarType wide() const { return wide_; }

 private:
  int64_t length() const { return rows_.size(1); }
  // Number of taps that reach a token of the row.
  int64_t reach() const { return std::min(taps_.size(0), length()); }
  at::Tensor tap(int64_t back) const { return taps_[taps_.size(0) - 1 - back]; }
  // Returns 1 if the token `back` positions earlier is in the same document.
  at::Tensor seen(int64_t back) const {
    return at::ge(place_.narrow(1, back, length() - back), back).to(wide_).unsqueeze(2);
  }
  at::Tensor earlier(int64_t back) const {
    if (back == 0) return rows_;
    const at::Tensor shifted = rows_.narrow(1, 0, length() - back);
    return place_.defined() ? shifted * seen(back) : shifted;
  }

  at::ScalarType wide_;
  at::Tensor rows_;   // [rows, sequence, channels]
  at::Tensor taps_;   // [taps, channels]
  at::Tensor bias_;   // [channels]; undefined: no bias
  at::Tensor place_;  // undefined: each row is one document
};

// Edges: x, weight, bias.
struct ShortConvolutionNode final : model::LayerNode {
  ShortConvolutionNode() : LayerNode("ShortConvolutionBackward") {}
  model::Saved x, weight, bias;
  TokenRows tokens;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor saved = x.unpack(), taps = weight.unpack(), added = bias.unpack();
    const Shifts shifts(saved, taps, tokens, added);
    const at::Tensor dy = gradients[0].to(shifts.wide()).view({tokens.rows, tokens.sequence, saved.size(1)});
    const at::Tensor d = at::silu_backward(dy, shifts.sum());
    Gradients out(3);
    if (task_should_compute_output(0))
      out[0] = shifts.gradient_of_rows(d).flatten(0, 1).to(saved.scalar_type());
    if (task_should_compute_output(1)) out[1] = shifts.gradient_of_weight(d).to(taps.scalar_type());
    if (added.defined() && task_should_compute_output(2))
      out[2] = d.sum(at::IntArrayRef{0, 1}).to(added.scalar_type());
    return out;
  }
  void release_variables() override {
    x.reset();
    weight.reset();
    bias.reset();
  }
};

at::Tensor convolved(const at::Tensor& x, const at::Tensor& weight, const TokenRows& tokens,
                     const at::Tensor& bias) {
  return at::silu(Shifts(x, weight, tokens, bias).sum()).flatten(0, 1).to(x.scalar_type());
}

}  // namespace

at::Tensor short_convolution(const at::Tensor& x, const at::Tensor& weight, const TokenRows& tokens,
                             const at::Tensor& bias) {
  return model::forward_with<ShortConvolutionNode>(
      [&](ShortConvolutionNode& node) {
        node.x.save(x);
        node.weight.save_weight(weight);
        if (bias.defined()) node.bias.save_weight(bias);
        node.tokens = tokens;
      },
      [&] { return convolved(x, weight, tokens, bias); }, x, weight, bias);
}

at::Tensor continued_convolution(const at::Tensor& x, const at::Tensor& weight, at::Tensor& last,
                                 const at::Tensor& bias) {
  const int64_t before = weight.size(-1) - 1;
  if (!last.defined()) last = at::zeros({before, x.size(1)}, x.options());
  const at::Tensor all = at::cat({last, x}, 0);
  last = all.narrow(0, all.size(0) - before, before).clone();
  return short_convolution(all, weight, {1, all.size(0), {}}, bias).narrow(0, before, x.size(0));
}

}  // namespace heddle::decoder

// The experts of a mixture: feed-forward networks of one shape in stacked parameters, each for some tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "heddle/base/export.h"
#include "heddle/model/chain.h"
#include "heddle/model/expert_activation.h"
#include "heddle/model/module.h"
#include "heddle/model/routing.h"

namespace heddle {

class WeightGradients;

namespace model {

// The sum over a token's experts of weight * down(activation(gate_up(x))). x [tokens, hidden], gate_up
// [experts, columns * width, hidden], down [experts, hidden, width]; the chosen experts count from 0 in
// these. Returns [tokens, hidden] in x's dtype; zeros for a token without an expert. One node: it keeps x and
// the first product. Every expert has a gradient, zeros where it got no token; the parameters' gradients are
// left in `later` where that defers.
HEDDLE_API at::Tensor experts(const at::Tensor& x, const Routing& routing, const at::Tensor& gate_up,
                              const at::Tensor& down, const ExpertActivation& activation,
                              WeightGradients* later = nullptr);

}  // namespace model

// Two slots, named by the family: gate_up [experts, columns * width, hidden], the gate's rows before the
// up's, and down [experts, hidden, width]. A parallelizer may point both at some of the experts.
class HEDDLE_API Experts : public Module {
 public:
  struct Shape {
    int64_t experts = 0, hidden = 0, width = 0;
    model::ExpertActivation activation = {};
  };
  struct Names {
    std::string gate_up, down;
  };
  Experts(const Shape& shape, const Names& names, const Init& init, const at::TensorOptions& options);
  std::string_view kind() const override { return "experts"; }

  at::Tensor gate_up, down;

  // The seam of expert parallelism: links bring tokens to their experts around the computation of the experts
  // that this rank holds, which counts them from 0 (local()), or compute in its place. x [tokens, hidden] are
  // this rank's tokens, routing counts all experts of the model. Returns [tokens, hidden].
  using Instead = Chain<at::Tensor(const at::Tensor& x, const model::Routing& routing, Experts& experts,
                                   const Batch& batch, model::Meanwhile& meanwhile)>;
  Instead instead{"Experts::instead"};

  // The links, and within them local().
  at::Tensor run(const at::Tensor& x, const model::Routing& routing, const Batch& batch,
                 model::Meanwhile& meanwhile);
  // With the parameters as they are: model::experts().
  at::Tensor local(const at::Tensor& x, const model::Routing& routing, const Batch& batch);

  const Shape& shape() const { return shape_; }     // of the whole model
  int64_t held() const { return gate_up.size(0); }  // experts in the parameters

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // refused: run() takes a routing

 private:
  Shape shape_;
};

}  // namespace heddle

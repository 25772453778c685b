// A feed-forward layer of experts: a router, the experts, and what all tokens share.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "heddle/base/export.h"
#include "heddle/model/experts.h"
#include "heddle/model/linear.h"
#include "heddle/model/module.h"
#include "heddle/model/router.h"

namespace heddle {

// Hidden states [tokens, hidden] in and out. Children "gate" and "experts", and those that are added: a
// shared expert, and its gate.
class HEDDLE_API MoeLayer : public Module {
 public:
  MoeLayer(const RouterConfig& router, const Experts::Shape& experts, const Experts::Names& names,
           const Init& init, const at::TensorOptions& options);
  std::string_view kind() const override { return "moe_layer"; }

  // `shared` computes with every token; its output is added.
  void add_shared(std::string name, std::unique_ptr<Module> shared);
  // sigmoid(x W^T) multiplies the shared expert's output (Qwen2's): a linear layer to one column.
  void add_shared_gate(std::string name, const Init& init, const at::TensorOptions& options);

  Router& router() { return gate_; }
  Experts& experts() { return experts_; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  at::Tensor of_shared(const at::Tensor& x, const Batch& batch);

  Router gate_;
  Experts experts_;
  std::unique_ptr<Module> shared_;
  std::unique_ptr<Linear> shared_gate_;
};

}  // namespace heddle

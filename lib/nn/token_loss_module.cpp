// The loss as a module: its links, or the product of the head and the loss over it.
#include <ATen/TensorOperators.h>

#include <cmath>
#include <string>

#include "heddle/base/error.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/token_loss.h"

namespace heddle {

TokenLoss::TokenLoss(double soft_cap) : soft_cap_(soft_cap) {
  if (!(soft_cap >= 0) || std::isinf(soft_cap))
    throw Error(ErrorCode::input, "TokenLoss", "a soft cap of " + std::to_string(soft_cap),
                "give a number above 0, or 0 for none");
}

at::Tensor TokenLoss::logits(const at::Tensor& hidden, Linear& head, const Batch& batch) const {
  at::Tensor logits = head.call(hidden, batch);
  return soft_cap_ == 0 ? logits : (logits / soft_cap_).tanh() * soft_cap_;
}

at::Tensor TokenLoss::of(const at::Tensor& hidden, Linear& head, const Batch& batch) {
  if (instead.empty()) return of_itself(hidden, head, batch);
  const auto own = [this](const at::Tensor& given, Linear& by, const Batch& within) {
    return of_itself(given, by, within);
  };
  return instead.call(own, hidden, head, batch);
}

at::Tensor TokenLoss::of_itself(const at::Tensor& hidden, Linear& head, const Batch& batch) {
  if (head.plain() && !head.bias.defined())
    return model::linear_token_loss(hidden, head.weight, batch.labels, soft_cap_);
  return call(head.call(hidden, batch), batch);
}

at::Tensor TokenLoss::forward(at::Tensor logits, const Batch& batch) {
  return model::token_loss(logits, batch.labels, soft_cap_);
}

model::LossHead model::loss_head_of(Module& module) {
  LossHead found;
  module.visit("", [&](const std::string&, Module& one) {
    if (found.module != nullptr) return;
    LossHead here{&one};
    for (const auto& [name, child] : one.children()) {
      if (auto* linear = as<Linear>(*child)) here.linear = linear;
      if (auto* loss = as<TokenLoss>(*child)) here.loss = loss;
      if (child->traits().role == Role::norm) here.norm = child;
    }
    if (here.linear != nullptr && here.loss != nullptr) found = here;
  });
  return found;
}

model::LossHead model::loss_head_of(const Units& units) {
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit)
    if ((*unit)->module() != nullptr)
      if (LossHead head = loss_head_of(*(*unit)->module()); head.module != nullptr) return head;
  return {};
}

}  // namespace heddle

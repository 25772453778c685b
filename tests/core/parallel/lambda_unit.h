// A unit made of a function and its parameters, for tests.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/model/unit.h"

namespace heddle::tests {

class LambdaUnit : public Unit {
 public:
  using Body = std::function<Tensors(const std::vector<at::Tensor>& parameters, Tensors, const Batch&)>;
  LambdaUnit(std::vector<at::Tensor> parameters, Body body)
      : parameters_(std::move(parameters)), body_(std::move(body)) {}
  std::string_view name() const override { return "lambda"; }
  std::vector<ParameterSlot> parameters() override {
    std::vector<ParameterSlot> slots;
    for (at::Tensor& parameter : parameters_)
      slots.push_back({"p" + std::to_string(slots.size()), &parameter, {}});
    return slots;
  }
  Module* module() override { return nullptr; }
  Tensors forward(Tensors inputs, const Batch& batch) override {
    ++runs;
    return body_(parameters_, std::move(inputs), batch);
  }

  int runs = 0;

 private:
  std::vector<at::Tensor> parameters_;
  Body body_;
};

}  // namespace heddle::tests

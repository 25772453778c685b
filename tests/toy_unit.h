// Units made of parameters and a function.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heddle/model/unit.h"

namespace heddle::tests {

// A unit that owns its parameters. Its slots point at members of `own`.
class ToyUnit : public Unit {
 public:
  struct Parameter {
    std::string name;
    at::Tensor tensor;
    Init init;
    bool foreign = false;
  };
  using Body = std::function<Tensors(ToyUnit&, Tensors, const Batch&)>;
  ToyUnit(std::string name, std::vector<Parameter> parameters, Body body)
      : own(std::move(parameters)), name_(std::move(name)), body_(std::move(body)) {}

  std::string_view name() const override { return name_; }
  std::vector<ParameterSlot> parameters() override {
    std::vector<ParameterSlot> slots;
    for (Parameter& parameter : own)
      slots.push_back({parameter.name, &parameter.tensor, parameter.init, parameter.foreign});
    return slots;
  }
  Module* module() override { return nullptr; }
  Tensors forward(Tensors inputs, const Batch& batch) override {
    ++runs;
    if (events != nullptr) events->push_back("forward " + name_);
    if (before) before(inputs);
    return body_(*this, std::move(inputs), batch);
  }
  const Body& body() const { return body_; }
  size_t bytes() const { return own.front().tensor.storage().nbytes(); }

  std::vector<Parameter> own;
  int runs = 0;
  std::vector<std::string>* events = nullptr;
  std::function<void(const Tensors& inputs)> before;  // called before the body if set
  // Gathers a layer's weight from this rank's part. Empty if the rank holds the whole weight.
  std::function<at::Tensor(const at::Tensor& part)> gather;

 private:
  std::string name_;
  Body body_;
};

// Makes a unit with one parameter called `name`. The output is body(weight, inputs, batch).
template <class Body>
std::unique_ptr<ToyUnit> unit_of(const std::string& name, at::Tensor weight, Body body, Init init = {}) {
  std::vector<ToyUnit::Parameter> own = {{name, std::move(weight), init}};
  return std::make_unique<ToyUnit>(name, std::move(own),
                                   [body](ToyUnit& unit, Tensors inputs, const Batch& batch) {
                                     return Tensors{body(unit.own[0].tensor, std::move(inputs), batch)};
                                   });
}

}  // namespace heddle::tests

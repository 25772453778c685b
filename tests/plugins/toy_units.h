// Small units for tests of strategies: an embedding, layers and a head whose sizes divide by nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "heddle/model/unit.h"
#include "plugins/recording.h"

namespace heddle::tests {

// Parameters are members of the unit; the slots point at them.
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
    if (events != nullptr) events->push_back("forward " + name_);
    if (before) before(inputs);
    return body_(*this, std::move(inputs), batch);
  }
  const Body& body() const { return body_; }
  size_t bytes() const { return own.front().tensor.storage().nbytes(); }

  std::vector<Parameter> own;
  Events* events = nullptr;
  std::function<void(const Tensors& inputs)> before;  // called by forward first; may be empty
  // From this rank's part of a layer's weight to the weight; empty: they are one.
  std::function<at::Tensor(const at::Tensor& part)> gather;

 private:
  std::string name_;
  Body body_;
};

struct Toy {
  static constexpr int64_t kVocabulary = 10, kWidth = 6;
  int layers = 3;
  at::ScalarType dtype = at::kFloat;
  bool meta = true;  // else real tensors, the same on every rank unless `shift` differs
  bool foreign = false;
  double shift = 0;  // added to real tensors
  bool tied = false;
  Events* events = nullptr;
};

// Units "embed", "layer0", ..., "head". A layer has weight, bias, a scale of one row, and `extra`, which
// takes part where batch.extra holds something above zero (or is absent). Where it is below
// zero, the head's backward does not reach the units before it.
Units toy_units(const Toy& toy);
ToyUnit& toy_at(const Units& units, size_t index);

}  // namespace heddle::tests

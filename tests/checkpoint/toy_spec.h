// A model of named parameters without layers. Its stored tensors may differ from its parameters.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heddle/model/family.h"

namespace heddle::tests {

struct ToySpec : ModelSpec {
  std::vector<std::pair<std::string, std::vector<int64_t>>> parameters;
  std::map<std::string, std::vector<std::string>> others;
  std::function<StoredParts(const std::string&, std::span<const int64_t>)> place = {};

  ModelFacts facts() const override { return {"toy", 2, 2, ""}; }
  std::map<std::string, std::string> signature() const override { return {{"model_type", "toy"}}; }
  std::string config_json(const std::string&) const override { return "{}"; }
  double flops_per_token(int64_t) const override { return 1; }
  Units make_units(const at::TensorOptions& options) const override {
    struct Parameters : Unit {
      std::vector<std::pair<std::string, at::Tensor>> own;
      std::string_view name() const override { return "toy"; }
      std::vector<ParameterSlot> parameters() override {
        std::vector<ParameterSlot> slots;
        for (auto& [name, tensor] : own) slots.push_back({name, &tensor, {}});
        return slots;
      }
      Module* module() override { return nullptr; }
      Tensors forward(Tensors inputs, const Batch&) override { return inputs; }
    };
    auto unit = std::make_unique<Parameters>();
    for (const auto& [name, shape] : parameters) unit->own.emplace_back(name, at::empty(shape, options));
    Units units;
    units.push_back(std::move(unit));
    return units;
  }
  StoredParts stored(const std::string& parameter, std::span<const int64_t> shape) const override {
    return place ? place(parameter, shape) : StoredParts{};
  }
  std::vector<std::string> other_names(const std::string& tensor) const override {
    const auto found = others.find(tensor);
    return found == others.end() ? std::vector<std::string>{} : found->second;
  }
};

}  // namespace heddle::tests

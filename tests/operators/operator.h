// Registry of the operators of lib/nn and lib/decoder, for tests that run every operator.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace heddle::tests {

using OperatorTensors = std::vector<at::Tensor>;

// A normally distributed input that requires a gradient.
struct OperatorInput {
  OperatorInput(std::initializer_list<int64_t> shape) : sizes(shape) {}
  // Keeps float32 where other inputs have a narrower dtype, as router weights do.
  OperatorInput wide() && {
    is_wide = true;
    return std::move(*this);
  }
  OperatorInput times(double factor) && {
    scale = factor;
    return std::move(*this);
  }

  std::vector<int64_t> sizes;
  bool is_wide = false;
  double scale = 1;
};

// Computes the outputs of a call. Constants are tensors without gradient, on the device of the inputs.
using OperatorFunction =
    std::function<OperatorTensors(const OperatorTensors& inputs, const OperatorTensors& constants)>;

enum class OperatorCheck { formula, gradient, meta, bfloat16, recomputation, subsets, views, simulated };
const char* name_of(OperatorCheck check);

// One shape of an operator and its options.
struct OperatorCase {
  std::string name;
  std::vector<OperatorInput> inputs;
  OperatorFunction run;
  // Reference formula by LibTorch operators on float64 inputs. Empty only where Operator::skipped says why.
  OperatorFunction plain = {};
  OperatorTensors constants = {};  // on the CPU
  // Multiply-adds of the matrix products in the forward pass. Negative: not stated.
  double products = -1;
  std::map<OperatorCheck, std::string> skipped = {};  // checks that do not apply, with the reason
};

struct Operator {
  std::string name;  // of the function under test
  // Autograd nodes between outputs and inputs. Empty: the operator has no gradient.
  std::vector<std::string> nodes;
  std::vector<OperatorCase> cases;
  std::map<OperatorCheck, std::string> skipped = {};  // like OperatorCase::skipped, for all cases
  bool in_half = false;                               // supports float16
  double narrow_tolerance = 3e-2;        // for bfloat16 and float16, relative to the largest value
  std::vector<OperatorCase> speed = {};  // shapes of a real model; empty: times the last case
};

// Returns all operators. The first call builds the registry.
const std::vector<Operator>& operators();

// Parts of the registry, one function per source file.
std::vector<Operator> product_operators();
std::vector<Operator> row_operators();
std::vector<Operator> attention_operators();
std::vector<Operator> expert_operators();
std::vector<Operator> recurrence_operators();
std::vector<Operator> decoder_operators();
std::vector<Operator> layer_operators();

// Draws the inputs of a case, equal on every device. float64 inputs equal the float32 inputs.
OperatorTensors draw_inputs(const OperatorCase& of, at::ScalarType dtype, at::Device device);
OperatorTensors move_constants(const OperatorCase& of, at::Device device);

// Outputs, and the gradients of a weighted sum of the outputs. Zeros for inputs without gradient.
struct OperatorResult {
  OperatorTensors outputs, gradients;
};
OperatorResult run_operator(const OperatorFunction& function, const OperatorTensors& inputs,
                            const OperatorTensors& constants);
// Computes the gradients for given outputs.
OperatorTensors gradients_of(const OperatorTensors& outputs, const OperatorTensors& inputs);

// Checks that outputs and gradients equal those of `want` within a tolerance relative to each tensor's
// largest value.
void expect_results(const OperatorResult& got, const OperatorResult& want, double tolerance);
void expect_bits(const OperatorResult& got, const OperatorResult& want);

}  // namespace heddle::tests

// A registry of the operators of lib/nn and lib/decoder, for tests that run every operator.
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

// A tensor of normal numbers, for which an operator computes a gradient.
struct OperatorInput {
  OperatorInput(std::initializer_list<int64_t> shape) : sizes(shape) {}
  // Keeps float32 where other inputs are narrower, as weights of a router do.
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

// Returns the outputs of a call. Constants are the tensors without a gradient, on the device of the inputs.
using OperatorFunction =
    std::function<OperatorTensors(const OperatorTensors& inputs, const OperatorTensors& constants)>;

enum class OperatorCheck { formula, gradient, meta, bfloat16, recomputation, subsets, views, simulated };
const char* name_of(OperatorCheck check);

// One shape of an operator with its options.
struct OperatorCase {
  std::string name;
  std::vector<OperatorInput> inputs;
  OperatorFunction run;
  // The formula by operators of LibTorch on inputs in float64. Empty only where Operator::skipped says why.
  OperatorFunction plain = {};
  OperatorTensors constants = {};  // on the CPU
  // Multiplications and additions of the matrix products of the forward. Below 0: not stated.
  double products = -1;
  std::map<OperatorCheck, std::string> skipped = {};  // checks that do not apply, with the reason
};

struct Operator {
  std::string name;  // of the function
  // Autograd nodes between the outputs and the inputs. Empty: the operator has no gradient.
  std::vector<std::string> nodes;
  std::vector<OperatorCase> cases;
  std::map<OperatorCheck, std::string> skipped = {};  // as OperatorCase::skipped, of all cases
  bool in_half = false;                               // computes in float16 too
  double narrow_tolerance = 3e-2;        // of bfloat16 and float16, relative to the largest number
  std::vector<OperatorCase> speed = {};  // shapes of a model; empty: the last case is measured
};

// All operators. Built at the first call.
const std::vector<Operator>& operators();

// The parts of the registry.
std::vector<Operator> product_operators();
std::vector<Operator> row_operators();
std::vector<Operator> attention_operators();
std::vector<Operator> expert_operators();
std::vector<Operator> recurrence_operators();
std::vector<Operator> decoder_operators();
std::vector<Operator> layer_operators();

// Inputs of a case, equal on every device. Those in float64 are those in float32.
OperatorTensors draw_inputs(const OperatorCase& of, at::ScalarType dtype, at::Device device);
OperatorTensors move_constants(const OperatorCase& of, at::Device device);

// Outputs and the gradients of a weighted sum of the outputs. An input without a gradient gets zeros.
struct OperatorResult {
  OperatorTensors outputs, gradients;
};
OperatorResult run_operator(const OperatorFunction& function, const OperatorTensors& inputs,
                            const OperatorTensors& constants);
// Gradients alone, for outputs that exist.
OperatorTensors gradients_of(const OperatorTensors& outputs, const OperatorTensors& inputs);

// The outputs and gradients of `got` equal those of `want` up to a tolerance relative to the largest number
// of each tensor.
void expect_results(const OperatorResult& got, const OperatorResult& want, double tolerance);
void expect_bits(const OperatorResult& got, const OperatorResult& want);

}  // namespace heddle::tests

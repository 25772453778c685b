// State of Mamba-2's state space rule and of its convolution across chunks of a sequence.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <vector>

#include "lib/decoder/mamba/state_scan.h"
#include "tests/decoder/rules.h"

namespace heddle::tests {
namespace {

using decoder::ScanHeads;
using decoder::ScanInputs;
using decoder::TokenRows;

using ScanShape = RuleShape<ScanHeads>;

std::vector<at::Tensor> scan_inputs(const ScanShape& shape) {
  const int64_t tokens = shape.rows * shape.sequence;
  const ScanHeads& of = shape.heads;
  return {random_leaf({tokens, of.heads * of.width}),
          random_leaf({tokens, of.groups * of.state}),
          random_leaf({tokens, of.groups * of.state}),
          random_leaf({tokens, of.heads}),
          random_leaf({of.heads}),
          random_leaf({of.heads}),
          random_leaf({of.heads})};
}

const Rule<ScanInputs, ScanHeads> kScan = {
    scan_inputs,
    [](const ScanInputs& in, const ScanHeads& heads, const TokenRows& tokens, at::Tensor* state) {
      return decoder::state_scan(in, heads, tokens, state);
    },
    4};

// A sequence in chunks equals the whole sequence.
TEST(StateScanState, ContinuesWhereItWas) {
  at::manual_seed(5);
  kScan.expect_continues({"", 1, 100, {2, 4, 3, 5}}, {70, 1, 1, 28});
}

TEST(ShortConvolution, ContinuesWhereItWas) {
  at::manual_seed(7);
  const at::NoGradGuard guard;
  const at::Tensor x = random_leaf({11, 3}), weight = random_leaf({3, 1, 4}), bias = random_leaf({3});
  at::Tensor last;
  const at::Tensor first = decoder::continued_convolution(x.narrow(0, 0, 4), weight, last, bias);
  const at::Tensor rest = decoder::continued_convolution(x.narrow(0, 4, 7), weight, last, bias);
  expect_near_double(at::cat({first, rest}), decoder::short_convolution(x, weight, {1, 11, {}}, bias), 1e-13,
                     "continued");
}

}  // namespace
}  // namespace heddle::tests

// Weights in 4 bits equal bitsandbytes' values (tests/golden/make_nf4.py), by loops and by operators.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <cmath>

#include "heddle/base/error.h"
#include "heddle/checkpoint/safetensors.h"
#include "plugins/quantize/packed.h"

namespace heddle::tests {
namespace {

using quantize::Form;

const SafetensorsFile& nf4_file() {
  static const SafetensorsFile file(std::string(HEDDLE_SOURCE_DIR) + "/tests/golden/nf4/nf4.safetensors");
  return file;
}

at::Tensor nf4_tensor(const std::string& name) {
  const StoredTensor& stored = nf4_file().tensors().at(name);
  const at::Tensor out = at::empty(stored.shape, stored.dtype);
  nf4_file().read(name, std::vector<int64_t>(stored.shape.size(), 0), out);
  return out;
}

Form nf4_form(const at::Tensor& weight, bool double_quant) {
  return {weight.size(0), weight.size(1), weight.scalar_type(), double_quant};
}

TEST(Nf4, EqualsBitsandbytesBitForBit) {
  for (const std::string name : {"odd", "groups", "halves", "zeros"})
    for (const bool double_quant : {false, true}) {
      SCOPED_TRACE(name + (double_quant ? " double" : " plain"));
      const at::Tensor weight = nf4_tensor(name + ".weight");
      const Form form = nf4_form(weight, double_quant);
      const at::Tensor bytes = quantize::pack(weight, form);
      const at::Tensor codes = nf4_tensor(name + ".codes");
      EXPECT_TRUE(bytes.flatten().narrow(0, 0, codes.numel()).equal(codes));
      const at::Tensor want = nf4_tensor(name + (double_quant ? ".double" : ".plain"));
      const at::ScalarType dtype = weight.scalar_type();
      EXPECT_TRUE(quantize::unpack(bytes, form, dtype).equal(want));
      EXPECT_TRUE(quantize::unpack_by_operators(bytes, form, dtype).equal(want));
    }
}

// Products may have another dtype than the stored weight, so values are rounded to both.
TEST(Nf4, RoundsToTheDtypeOfTheWeightFirst) {
  const at::Tensor weight = nf4_tensor("halves.weight");
  const Form form = nf4_form(weight, true);
  const at::Tensor bytes = quantize::pack(weight, form), want = nf4_tensor("halves.double");
  EXPECT_TRUE(quantize::unpack(bytes, form, at::kFloat).equal(want.to(at::kFloat)));
  EXPECT_TRUE(quantize::unpack_by_operators(bytes, form, at::kFloat).equal(want.to(at::kFloat)));
}

TEST(Nf4, UsesAtMost14PercentOfFloat32) {
  const Form form{2048, 1000, at::kFloat, true};
  EXPECT_LE(static_cast<double>(form.rows() * quantize::kRow),
            0.14 * 4 * static_cast<double>(form.numbers()));
  const at::Tensor weight = at::randn({2048, 1000}) * 0.02;
  const at::Tensor bytes = quantize::pack(weight, form);
  EXPECT_EQ(bytes.numel(), form.rows() * quantize::kRow);
  const at::Tensor error = quantize::unpack(bytes, form, at::kFloat) - weight;
  EXPECT_LT(error.std().item<double>(), 0.1 * 0.02);
  EXPECT_GT(error.std().item<double>(), 0.05 * 0.02);
}

TEST(Nf4, RefusesNonFiniteValues) {
  for (const double bad : {static_cast<double>(INFINITY), std::nan("")}) {
    const at::Tensor weight = at::zeros({3, 70});
    weight.select(0, 2).narrow(0, 69, 1).fill_(bad);
    EXPECT_THROW((void)quantize::pack(weight, nf4_form(weight, true)), Error);
  }
}

}  // namespace
}  // namespace heddle::tests

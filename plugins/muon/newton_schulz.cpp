// Newton-Schulz iteration with products of the smaller side. Replicas compute it separately and need the same
// bits on every processor, so no operator that fuses a product with a sum is used.
#include "newton_schulz.h"

#include <ATen/TensorOperators.h>

#include "heddle/train/replicated.h"

namespace heddle::muon {
namespace {

struct Coefficients {
  double a, b, c;
};
constexpr Coefficients kSteps[] = {{4.0848, -6.8946, 2.9270},
                                   {3.9505, -6.3029, 2.6377},
                                   {3.7418, -5.5913, 2.3037},
                                   {2.8769, -3.1427, 1.2046},
                                   {2.8366, -3.0525, 1.2012}};

}  // namespace

at::Tensor newton_schulz(const at::Tensor& matrix, double epsilon) {
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = tall ? matrix.t() : matrix;
  x = x / (train::replicated_norm(x) + epsilon);
  for (const auto& [a, b, c] : kSteps) {
    const at::Tensor product = train::replicated_product(x, x.t());
    const at::Tensor polynomial = product * b + train::replicated_product(product, product) * c;
    x = x * a + train::replicated_product(polynomial, x);
  }
  return tall ? x.t() : x;
}

}  // namespace heddle::muon

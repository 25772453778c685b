// xIELU, an activation with two trainable parameters.
#include "lib/decoder/xielu/xielu.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/softplus.h>

#include <cmath>
#include <memory>
#include <span>

#include "core/model/parameter.h"
#include "heddle/decoder/mixer.h"
#include "heddle/model/autograd_node.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {
namespace {

// Initial values. Those of the alphas are before softplus.
constexpr double kXieluAlpha = 0.8, kXieluBeta = 0.5, kXieluEps = -1e-6;

double first_alpha_p(const InitElement&) {
  return std::log(std::expm1(kXieluAlpha));
}
double first_alpha_n(const InitElement&) {
  return std::log(std::expm1(kXieluAlpha - kXieluBeta));
}
double first_beta(const InitElement&) {
  return kXieluBeta;
}
double first_eps(const InitElement&) {
  return kXieluEps;
}

class Xielu : public Module {
 public:
  explicit Xielu(const at::TensorOptions& options) {
    add("alpha_p", alpha_p_, {1}, first_alpha_p, true, options);
    add("alpha_n", alpha_n_, {1}, first_alpha_n, true, options);
    add("beta", beta_, {}, first_beta, false, options);
    add("eps", eps_, {}, first_eps, false, options);
  }
  std::string_view kind() const override { return "xielu"; }
  ModuleTraits traits() const override {
    return {.tokens = TokenUse::each_alone, .role = Role::norm, .elementwise = true};
  }

 protected:
  at::Tensor forward(at::Tensor x, const Batch&) override {
    return xielu(x, alpha_p_, alpha_n_, beta_, eps_);
  }

 private:
  void add(const char* name, at::Tensor& tensor, at::IntArrayRef shape, Init::Function first, bool trains,
           const at::TensorOptions& options) {
    tensor = model::make_parameter(shape, Init::by(first), options);
    tensor.set_requires_grad(trains);
    add_slot(name, tensor, Init::by(first));
  }

  at::Tensor alpha_p_, alpha_n_, beta_, eps_;
};

class XieluMaker : public ActivationMaker {
 public:
  std::unique_ptr<Module> make(const at::TensorOptions& options) const override {
    return std::make_unique<Xielu>(options);
  }
};

}  // namespace

at::Tensor xielu(const at::Tensor& x, const at::Tensor& alpha_p, const at::Tensor& alpha_n,
                 const at::Tensor& beta, const at::Tensor& eps) {
  const auto formula = [](std::span<const at::Tensor> in, bool) {
    const at::ScalarType dtype = model::accumulation_dtype(in[0].scalar_type());
    const at::Tensor wide = in[0].to(dtype), slope = in[3].to(dtype), bound = in[4].to(dtype);
    const at::Tensor positive = at::softplus(in[1].to(dtype)),
                     negative = slope + at::softplus(in[2].to(dtype));
    // By factors of 0 and 1: LibTorch has no meta kernels for where() and for the gradients of clamp_min()
    // and minimum().
    const at::Tensor rises = wide * (wide > 0).to(dtype), falls = (wide <= 0).to(dtype),
                     beyond = (wide < bound).to(dtype), least = wide * beyond + bound * (1 - beyond);
    const at::Tensor above = positive * rises * rises, below = (at::expm1(least) - wide) * negative * falls;
    return (above + below + slope * wide).to(in[0].scalar_type());
  };
  return model::recomputed("XieluBackward", {x}, {alpha_p, alpha_n, beta, eps}, formula);
}

std::shared_ptr<const ActivationMaker> xielu() {
  return std::make_shared<XieluMaker>();
}

}  // namespace heddle::decoder

// Making the parameters of a layer.
#include "core/model/parameter.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

namespace heddle::model {

at::Tensor make_parameter(at::IntArrayRef shape, const Init& init, const at::TensorOptions& options) {
  at::NoGradGuard no_grad;
  at::Tensor parameter = at::empty(shape, options);
  if (!parameter.is_meta()) {
    switch (init.kind) {
      case Init::Kind::normal:
        parameter.normal_(0.0, init.std);
        break;
      case Init::Kind::zeros:
        parameter.zero_();
        break;
      case Init::Kind::ones:
        parameter.fill_(1.0);
        break;
    }
  }
  return parameter.set_requires_grad(true);
}

}  // namespace heddle::model

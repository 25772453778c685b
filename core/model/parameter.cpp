// Making the parameters of a layer.
#include "core/model/parameter.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <vector>

#include "heddle/base/error.h"

namespace heddle::model {

void apply_function(const at::Tensor& values, const Init& init, at::IntArrayRef shape,
                    at::IntArrayRef offset) {
  if (init.function == nullptr)
    throw Error(ErrorCode::input, "Init", "a parameter is initialised by a function, and there is none",
                "use Init::by(function)");
  const at::IntArrayRef box = values.sizes();
  const int64_t dims = values.dim(), row = dims == 0 || box[dims - 1] == 0 ? 1 : box[dims - 1];
  auto* out = values.mutable_data_ptr<float>();
  at::parallel_for(0, values.numel() / row, 1 + (1 << 12) / row, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> index(shape.size());
    for (int64_t at = begin * row; at < end * row; ++at) {
      int64_t rest = at;
      for (int64_t dim = dims - 1; dim >= 0; --dim) {
        index[static_cast<size_t>(dim)] = offset[dim] + rest % box[dim];
        rest /= box[dim];
      }
      out[at] = static_cast<float>(init.function({index, shape, out[at], init.std}));
    }
  });
}

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
      case Init::Kind::function: {
        const at::Tensor values = at::empty(shape, at::kFloat).normal_(0.0, 1.0);
        apply_function(values, init, shape, std::vector<int64_t>(shape.size(), 0));
        parameter.copy_(values);
        break;
      }
    }
  }
  return parameter.set_requires_grad(at::isFloatingType(parameter.scalar_type()));
}

}  // namespace heddle::model

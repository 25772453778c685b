// scaled_dot_product_attention on simulated GPUs: LibTorch's composite of products, which float32 with
// grouped heads may take on a GPU too.
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

namespace heddle::simulated {
namespace {

int64_t choose(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
               double, bool, std::optional<double>, bool) {
  return static_cast<int64_t>(sdp::SDPBackend::math);
}

const bool attention_registered = [] {
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose);
  return true;
}();

}  // namespace
}  // namespace heddle::simulated

// scaled_dot_product_attention, and a refusal of what it does not do without a matrix of scores.
#include "lib/nn/attention/attend_device.h"

#include <ATen/ops/scaled_dot_product_attention.h>

#include <string>

#include "heddle/base/error.h"
#include "heddle/nn/attention_layout.h"

namespace heddle::model {
namespace {

void refuse_if(bool asked, const char* what, const at::Tensor& q) {
  if (asked)
    throw Error(ErrorCode::not_built, "model",
                std::string("attention with ") + what + " is not built for the device " + q.device().str(),
                "run on the CPU, or leave it out");
}

}  // namespace

at::Tensor attend_on_device(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const Heads& heads) {
  refuse_if(heads.options.window > 0 && heads.options.window < heads.sequence, "a sliding window", q);
  refuse_if(heads.options.soft_cap > 0, "a soft cap", q);
  refuse_if(heads.sinks.defined(), "sinks", q);
  const int64_t count = q.size(1) / heads.head_dim;
  const at::Tensor keys = by_head(k, heads, heads.head_dim);
  return by_token(at::scaled_dot_product_attention(
                      by_head(q, heads, heads.head_dim), keys, by_head(v, heads, heads.value_dim()), {}, 0.0,
                      heads.options.causal, heads.scale(), count != keys.size(1)),
                  {q.size(0), count * heads.value_dim()});
}

}  // namespace heddle::model

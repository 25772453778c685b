// Entry compressor: two projections per token, a weighted sum per entry, a norm, and a rotation.
#include <utility>

#include "core/model/parameter.h"
#include "heddle/base/error.h"
#include "lib/decoder/compressed/compressed_attention.h"
#include "lib/decoder/compressed/pooled_entries.h"
#include "lib/decoder/norm.h"

namespace heddle::decoder {
namespace {

int64_t columns_of(const CompressedAttention& form) {
  return form.head_dim * (form.overlapped ? 2 : 1);
}

}  // namespace

EntryCompressor::EntryCompressor(const CompressedAttention& form, int64_t width, double init_std,
                                 const at::TensorOptions& options)
    : overlapped_(form.overlapped),
      kv_proj_(width, columns_of(form), Linear::Bias::none, normal(init_std), options),
      gate_proj_(width, columns_of(form), Linear::Bias::none, normal(init_std), options),
      kv_norm_(form.head_dim, form.eps, options) {
  const Init zeros{Init::Kind::zeros, 0.0};
  const auto wide = options.dtype() == at::kDouble ? at::kDouble : at::kFloat;
  position_bias_ = model::make_parameter({form.rate, columns_of(form)}, zeros, options.dtype(wide));
  add_slot("position_bias", position_bias_, zeros);
  slots().back().compute = wide;
  add_child("kv_proj", kv_proj_);
  add_child("gate_proj", gate_proj_);
  add_child("kv_norm", kv_norm_);
  if (form.index_top_k == 0) return;
  indexer_ = std::make_unique<EntryIndexer>(form, width, init_std, options);
  add_child("indexer", *indexer_);
}

model::FewTensors EntryCompressor::rows(const at::Tensor& x, const Batch& batch) {
  return model::call_each({&kv_proj_, &gate_proj_}, x, batch);
}

at::Tensor EntryCompressor::entries(const at::Tensor& kv, const at::Tensor& gate,
                                    const model::RotaryAngles& angles,
                                    const std::shared_ptr<const EntryTable>& table, const Batch& batch) {
  return model::rotate(kv_norm_.call(pooled_entries(kv, gate, position_bias_, table, overlapped_), batch),
                       angles);
}

at::Tensor EntryCompressor::forward(at::Tensor, const Batch&) {
  throw Error(ErrorCode::internal, "model", "a compressor returns two tensors, but call() was used",
              "use rows()");
}

}  // namespace heddle::decoder

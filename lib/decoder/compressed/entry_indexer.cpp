// Entry indexer: keys of entries, and scores summed over heads.
#include "lib/decoder/compressed/entry_indexer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <utility>

#include "core/model/parameter.h"
#include "heddle/base/error.h"
#include "heddle/model/autograd_node.h"
#include "heddle/nn/device_ops.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/rms_norm.h"
#include "lib/decoder/compressed/pooled_entries.h"
#include "lib/decoder/latent/choose_keys.h"
#include "lib/decoder/norm.h"

namespace heddle::decoder {

EntryIndexer::EntryIndexer(const CompressedAttention& form, int64_t width, double init_std,
                           const at::TensorOptions& options)
    : form_(form) {
  const Init ones{Init::Kind::ones, 0.0}, zeros{Init::Kind::zeros, 0.0};
  const int64_t dim = form.index_head_dim, parts = form.overlapped ? 2 : 1;
  add("kv_proj.weight", kv_proj_, {parts * dim, width}, normal(init_std), options);
  add("gate_proj.weight", gate_proj_, {parts * dim, width}, normal(init_std), options);
  const auto wide = options.dtype() == at::kDouble ? at::kDouble : at::kFloat;
  add("position_bias", position_bias_, {form.rate, parts * dim}, zeros, options.dtype(wide));
  slots().back().compute = wide;
  add("kv_norm.weight", kv_norm_, {dim}, ones, options);
  add("q_b_proj.weight", q_b_proj_, {form.index_heads * dim, form.query_rank}, normal(init_std), options);
  add("scorer.weights_proj.weight", weights_proj_, {form.index_heads, width}, normal(init_std), options);
  add_child("core", core_);
}

void EntryIndexer::add(const std::string& name, at::Tensor& slot, at::IntArrayRef sizes, const Init& init,
                       const at::TensorOptions& options) {
  slot = model::make_parameter(sizes, init, options);
  slot.set_requires_grad(false);
  add_slot(name, slot, init);
}

at::Tensor EntryIndexer::rows(const at::Tensor& x) const {
  const at::NoGradGuard no_gradients;
  return at::cat({model::linear(x, kv_proj_, {}), model::linear(x, gate_proj_, {})}, 1);
}

at::Tensor EntryIndexer::choose(const at::Tensor& x, const at::Tensor& of_queries,
                                const model::RotaryAngles& angles, const model::GatheredRows& rows,
                                const std::shared_ptr<const EntryTable>& table,
                                const model::RotaryAngles& of_entries) const {
  if (table->most <= form_.index_top_k) return {};
  const at::NoGradGuard no_gradients;
  const int64_t dim = form_.index_head_dim, half = rows.values.size(1) / 2;
  const auto rotated = [&](const at::Tensor& heads, model::RotaryAngles of) {
    of.part = {dim, dim - form_.rotary, true};
    return model::rotate(heads, of);
  };
  const at::Tensor entries = pooled_entries(rows.values.narrow(1, 0, half), rows.values.narrow(1, half, half),
                                            position_bias_, table, form_.overlapped);
  KeyScores scores;
  scores.k = rotated(model::rms_norm(entries, kv_norm_, form_.eps), of_entries);
  scores.q = rotated(model::linear(of_queries, q_b_proj_, {}), angles);
  scores.weights = model::linear(x, weights_proj_, {});
  const model::BelowAutograd below;
  if (x.is_meta()) return at::empty({x.size(0), form_.index_top_k}, x.options().dtype(at::kInt));
  if (!rows.places.defined())
    return choose_within(scores, table->entries.host, table->entries.device, form_.index_top_k);
  const at::Tensor host = at::index_select(table->entries.host, 0, rows.places);
  return choose_within(scores, host, model::sent_to(host, x.device()), form_.index_top_k);
}

at::Tensor EntryIndexer::forward(at::Tensor, const Batch&) {
  throw Error(ErrorCode::internal, "model",
              "an indexer of entries takes several tensors, but call() was used", "use choose()");
}

}  // namespace heddle::decoder

// Projections per token, and attention over whole rows between them.
#include "lib/decoder/compressed/compressed_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <utility>

#include "core/model/parameter.h"
#include "heddle/base/error.h"
#include "lib/decoder/compressed/window_attention.h"
#include "lib/decoder/norm.h"

namespace heddle::decoder {
namespace {

Rotary rotary_of(const CompressedAttention& form) {
  return Rotary(model::rotary_frequencies(form.rotary, form.theta, form.scaling),
                model::rotary_factor(form.scaling), {form.head_dim, form.head_dim - form.rotary, true});
}

model::RotaryAngles turned_back(const model::RotaryAngles& angles) {
  return {angles.cos, -angles.sin, angles.part};
}

}  // namespace

// Cached rows of one sequence.
class CompressedMixer::KeptRows final : public MixerState {
 public:
  void clear() override { *this = KeptRows(); }
  // Appends new rows to the cached rows, and returns all of them.
  static void add(at::Tensor& kept, at::Tensor& rows) {
    kept = kept.defined() ? at::cat({kept, rows}) : rows;
    rows = kept;
  }

  int64_t tokens = 0;  // including those of this forward
  at::Tensor kv, entry_kv, entry_gate, index;
};

CompressedMixer::CompressedMixer(const CompressedAttention& form, int64_t width, double init_std,
                                 const at::TensorOptions& options)
    : form_(form),
      q_a_proj_(width, form.query_rank, Linear::Bias::none, normal(init_std), options),
      q_b_proj_(form.query_rank, form.heads * form.head_dim, Linear::Bias::none, normal(init_std), options),
      kv_proj_(width, form.head_dim, Linear::Bias::none, normal(init_std), options),
      o_b_proj_(form.output_groups * form.output_rank, width, Linear::Bias::none, normal(init_std), options),
      q_a_norm_(form.query_rank, form.eps, options),
      q_b_norm_(form.head_dim, form.eps, options, RmsNorm::Scale::none),
      kv_norm_(form.head_dim, form.eps, options),
      o_a_proj_(form.output_groups, form.heads * form.head_dim / form.output_groups, form.output_rank,
                normal(init_std), options),
      rotary_(rotary_of(form)),
      rotary_of_entries_(rotary_of(form)),
      tables_(form.rate, form.window),
      core_({1, form.heads, /*split=*/false}) {
  const Init zeros{Init::Kind::zeros, 0.0};
  const auto wide = options.dtype() == at::kDouble ? at::kDouble : at::kFloat;
  sinks_ = model::make_parameter({form.heads}, zeros, options.dtype(wide));
  add_slot("sinks", sinks_, zeros);
  slots().back().compute = wide;
  add_child("q_a_proj", q_a_proj_);
  add_child("q_a_norm", q_a_norm_);
  add_child("q_b_proj", q_b_proj_);
  add_child("q_b_norm", q_b_norm_);
  add_child("kv_proj", kv_proj_);
  add_child("kv_norm", kv_norm_);
  add_child("o_a_proj", o_a_proj_);
  add_child("o_b_proj", o_b_proj_);
  add_child("core", core_);
  if (form.rate == 0) return;
  compressor_ = std::make_unique<EntryCompressor>(form, width, init_std, options);
  add_child("compressor", *compressor_);
}

std::unique_ptr<MixerState> CompressedMixer::keep_state() {
  auto kept = std::make_unique<KeptRows>();
  kept_ = kept.get();
  return kept;
}

at::Tensor CompressedMixer::forward(at::Tensor x, const Batch& batch) {
  return o_b_proj_.call(heads(x, batch), batch);
}

at::Tensor CompressedMixer::call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) {
  if (!output.empty()) return residual + call(std::move(x), batch);
  return o_b_proj_.call_onto(residual, heads(input(std::move(x), batch), batch), batch);
}

at::Tensor CompressedMixer::heads(const at::Tensor& x, const Batch& batch) {
  if (kept_ != nullptr) kept_->tokens += x.size(0);
  model::FewTensors both = model::call_each({&q_a_proj_, &kv_proj_}, x, batch);
  const at::Tensor of_queries = q_a_norm_.call(std::move(both[0]), batch);
  const model::RotaryAngles angles = rotary_.angles(batch);
  const auto [q, kv] = model::rotate(q_b_norm_.call(q_b_proj_.call(of_queries, batch), batch),
                                     kv_norm_.call(std::move(both[1]), batch), angles);
  const auto table = table_of(batch, x);
  model::SequenceInputs in{{q}, {kv}};
  at::Tensor keys;
  if (compressor_) {
    for (at::Tensor& rows : compressor_->rows(x, batch)) in.of_groups.push_back(std::move(rows));
    keys = chosen(x, of_queries, table, batch);
  }
  const at::Tensor y = core_.compute(std::move(in), {1, form_.heads}, batch,
                                     [&](const model::SequenceInputs& whole, const model::HeadRange& range) {
                                       return attended(whole, range, keys, table, batch);
                                     });
  return o_a_proj_.call(model::rotate(y, turned_back(angles)), batch);
}

at::Tensor CompressedMixer::chosen(const at::Tensor& x, const at::Tensor& of_queries,
                                   const std::shared_ptr<const EntryTable>& table, const Batch& batch) {
  EntryIndexer* const indexer = compressor_->indexer();
  if (indexer == nullptr) return {};
  at::Tensor own = indexer->rows(x);
  if (kept_ != nullptr) KeptRows::add(kept_->index, own);
  const model::GatheredRows rows =
      kept_ != nullptr ? model::GatheredRows{own, {}} : indexer->core().gather(std::move(own), batch);
  const at::Tensor chosen =
      indexer->choose(x, of_queries, rotary_.angles(batch), rows, table, angles_of_entries(*table, x));
  if (!chosen.defined() || kept_ != nullptr) return chosen;
  return indexer->core().gather(chosen, batch).values;
}

at::Tensor CompressedMixer::attended(const model::SequenceInputs& in, const model::HeadRange& range,
                                     const at::Tensor& chosen, const std::shared_ptr<const EntryTable>& table,
                                     const Batch& batch) {
  WindowInputs all{in.of_heads[0], in.of_groups[0], {}, {}, chosen};
  all.sinks = model::rows_of_heads(sinks_, {1, form_.heads}, range);
  if (kept_ != nullptr) KeptRows::add(kept_->kv, all.kv);
  if (compressor_) {
    at::Tensor kv = in.of_groups[1], gate = in.of_groups[2];
    if (kept_ != nullptr) KeptRows::add(kept_->entry_kv, kv), KeptRows::add(kept_->entry_gate, gate);
    all.entries = compressor_->entries(kv, gate, angles_of_entries(*table, kv), table, batch);
  }
  return window_attention(all, form_.head_dim, table);
}

std::shared_ptr<const EntryTable> CompressedMixer::table_of(const Batch& batch, const at::Tensor& like) {
  if (kept_ == nullptr) return tables_.of(batch, like);
  if (batch.tokens.size(0) != 1 || batch.documents.defined())
    throw Error(ErrorCode::internal, "generate", "a compressed attention keeps the rows of one sequence",
                "use batches of one row without documents");
  return tables_.of_last(batch.tokens.size(1), kept_->tokens, like.device());
}

// Returns the angles at the positions of the entries' first tokens.
const model::RotaryAngles& CompressedMixer::angles_of_entries(const EntryTable& table,
                                                              const at::Tensor& like) {
  Batch entries;
  entries.positions = table.positions;
  entries.tokens = table.positions.defined() ? table.positions
                                             : at::empty({1, table.count}, like.options().dtype(at::kLong));
  return rotary_of_entries_.angles(entries);
}

}  // namespace heddle::decoder

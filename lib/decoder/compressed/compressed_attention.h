// Attention over a window and compressed entries, as a module.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <string_view>

#include "heddle/decoder/description.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/rms_norm.h"
#include "heddle/nn/rotary.h"
#include "heddle/nn/sequence_core.h"
#include "lib/decoder/compressed/block_product.h"
#include "lib/decoder/compressed/entry_indexer.h"
#include "lib/decoder/compressed/entry_table.h"

namespace heddle::decoder {

// Computes entries from tokens. Children and slots as listed in CompressedAttention.
class EntryCompressor : public Module {
 public:
  EntryCompressor(const CompressedAttention& form, int64_t width, double init_std,
                  const at::TensorOptions& options);
  std::string_view kind() const override { return "entry_compressor"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }

  // Returns [tokens, entry width], or twice that for overlapping entries, token by token.
  model::FewTensors rows(const at::Tensor& x, const Batch& batch);
  // Computes rotated entries from the projections of whole rows.
  at::Tensor entries(const at::Tensor& kv, const at::Tensor& gate, const model::RotaryAngles& angles,
                     const std::shared_ptr<const EntryTable>& table, const Batch& batch);
  EntryIndexer* indexer() { return indexer_.get(); }  // null: a query sees all entries

 protected:
  // throws: use rows(), which returns two tensors
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  bool overlapped_;
  Linear kv_proj_, gate_proj_;
  RmsNorm kv_norm_;
  at::Tensor position_bias_;
  std::unique_ptr<EntryIndexer> indexer_;
};

class CompressedMixer : public Mixer {
 public:
  CompressedMixer(const CompressedAttention& form, int64_t width, double init_std,
                  const at::TensorOptions& options);
  std::string_view kind() const override { return "compressed_attention"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone, .role = Role::mixer}; }
  std::unique_ptr<MixerState> keep_state() override;
  at::Tensor call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) override;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  class KeptRows;

  at::Tensor heads(const at::Tensor& x, const Batch& batch);  // everything but o_b_proj
  // Returns the indexer's choice for whole rows.
  at::Tensor chosen(const at::Tensor& x, const at::Tensor& of_queries,
                    const std::shared_ptr<const EntryTable>& table, const Batch& batch);
  // Returns the attention of a range of heads over whole rows.
  at::Tensor attended(const model::SequenceInputs& in, const model::HeadRange& range,
                      const at::Tensor& chosen, const std::shared_ptr<const EntryTable>& table,
                      const Batch& batch);
  std::shared_ptr<const EntryTable> table_of(const Batch& batch, const at::Tensor& like);
  const model::RotaryAngles& angles_of_entries(const EntryTable& table, const at::Tensor& like);

  CompressedAttention form_;
  Linear q_a_proj_, q_b_proj_, kv_proj_, o_b_proj_;
  RmsNorm q_a_norm_, q_b_norm_, kv_norm_;
  BlockLinear o_a_proj_;
  at::Tensor sinks_;
  std::unique_ptr<EntryCompressor> compressor_;  // null: no entries
  Rotary rotary_, rotary_of_entries_;
  EntryTables tables_;
  SequenceCore core_;
  KeptRows* kept_ = nullptr;  // null: no state is kept between forwards
};

}  // namespace heddle::decoder

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

// What entries are made of, and what chooses them. Children and slots as CompressedAttention lists them.
class EntryCompressor : public Module {
 public:
  EntryCompressor(const CompressedAttention& form, int64_t width, double init_std,
                  const at::TensorOptions& options);
  std::string_view kind() const override { return "entry_compressor"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }

  // [tokens, width of an entry], twice where entries overlap: each token alone.
  model::FewTensors rows(const at::Tensor& x, const Batch& batch);
  // From those of whole rows to rotated entries.
  at::Tensor entries(const at::Tensor& kv, const at::Tensor& gate, const model::RotaryAngles& angles,
                     const std::shared_ptr<const EntryTable>& table, const Batch& batch);
  EntryIndexer* indexer() { return indexer_.get(); }  // null: a query sees all entries

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // refused: rows() gives two tensors

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

  at::Tensor heads(const at::Tensor& x, const Batch& batch);  // all but o_b_proj
  // The indexer's choice, of whole rows.
  at::Tensor chosen(const at::Tensor& x, const at::Tensor& of_queries,
                    const std::shared_ptr<const EntryTable>& table, const Batch& batch);
  // Of whole rows and a range of the heads.
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
  std::unique_ptr<EntryCompressor> compressor_;  // null: there are no entries
  Rotary rotary_, rotary_of_entries_;
  EntryTables tables_;
  SequenceCore core_;
  KeptRows* kept_ = nullptr;  // null: each forward begins anew
};

}  // namespace heddle::decoder

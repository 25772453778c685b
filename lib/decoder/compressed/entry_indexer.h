// Indexer of a compressed attention, which chooses the entries that a query sees.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "heddle/decoder/description.h"
#include "heddle/nn/rotary.h"
#include "heddle/nn/sequence_core.h"
#include "lib/decoder/compressed/entry_table.h"

namespace heddle::decoder {

// Slots as listed in CompressedAttention. A choice has no gradient, so they do not train.
class EntryIndexer : public Module {
 public:
  EntryIndexer(const CompressedAttention& form, int64_t width, double init_std,
               const at::TensorOptions& options);
  std::string_view kind() const override { return "entry_indexer"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }

  // Returns the inputs of entries, [tokens, 4 * index_head_dim], token by token.
  at::Tensor rows(const at::Tensor& x) const;
  // Returns WindowInputs::chosen for the queries; undefined if no query sees more than index_top_k entries. x
  // and of_queries (the queries' latent after its norm) belong to the queries, as do `angles`. rows:
  // projections of whole rows, and the positions of the queries in them. of_entries: angles of the entries.
  at::Tensor choose(const at::Tensor& x, const at::Tensor& of_queries, const model::RotaryAngles& angles,
                    const model::GatheredRows& rows, const std::shared_ptr<const EntryTable>& table,
                    const model::RotaryAngles& of_entries) const;

  RowGather& core() { return core_; }

 protected:
  // throws: use choose(), which takes several tensors
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  void add(const std::string& name, at::Tensor& slot, at::IntArrayRef sizes, const Init& init,
           const at::TensorOptions& options);

  CompressedAttention form_;
  RowGather core_;
  at::Tensor kv_proj_, gate_proj_, position_bias_, kv_norm_, q_b_proj_, weights_proj_;
};

}  // namespace heddle::decoder

// The indexer of a compressed attention: chooses the entries that a query sees.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "heddle/decoder/description.h"
#include "heddle/nn/rotary.h"
#include "heddle/nn/sequence_core.h"
#include "lib/decoder/compressed/entry_table.h"

namespace heddle::decoder {

// Slots as CompressedAttention lists them. A choice has no gradient, so they do not train.
class EntryIndexer : public Module {
 public:
  EntryIndexer(const CompressedAttention& form, int64_t width, double init_std,
               const at::TensorOptions& options);
  std::string_view kind() const override { return "entry_indexer"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }

  // What the entries are made of, [tokens, 4 * index_head_dim]: each token alone.
  at::Tensor rows(const at::Tensor& x) const;
  // x, of_queries (the queries' latent after its norm), angles: of the queries. rows: of whole rows, with the
  // places of the queries in them. of_entries: angles of the entries. WindowInputs::chosen of the queries;
  // undefined where none sees more than index_top_k.
  at::Tensor choose(const at::Tensor& x, const at::Tensor& of_queries, const model::RotaryAngles& angles,
                    const model::GatheredRows& rows, const std::shared_ptr<const EntryTable>& table,
                    const model::RotaryAngles& of_entries) const;

  RowGather& core() { return core_; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // refused: choose() takes several tensors

 private:
  void add(const std::string& name, at::Tensor& slot, at::IntArrayRef sizes, const Init& init,
           const at::TensorOptions& options);

  CompressedAttention form_;
  RowGather core_;
  at::Tensor kv_proj_, gate_proj_, position_bias_, kv_norm_, q_b_proj_, weights_proj_;
};

}  // namespace heddle::decoder

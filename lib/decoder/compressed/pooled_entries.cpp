// Gathers rows of tokens by entry and applies a softmax over the tokens of each entry.
#include "lib/decoder/compressed/pooled_entries.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/softmax.h>

#include <limits>

#include "heddle/model/autograd_node.h"
#include "lib/decoder/recurrence/recurrence_cost.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {
namespace {

using model::accumulation_dtype;

class Pool {
 public:
  Pool(const EntryTable& table, bool overlap, int64_t width)
      : table_(table), width_(overlap ? width / 2 : width), overlap_(overlap) {
    const at::Tensor within = at::arange(table.rate, table.first.options());
    own_ = (table.first.unsqueeze(1) + within).reshape({-1});
    if (overlap) before_ = (own_ - table.rate).clamp_min_(0);
  }

  // Returns the sums in the accumulation dtype, [entries, entry width].
  at::Tensor sums(const at::Tensor& kv, const at::Tensor& gate, const at::Tensor& bias) const {
    at::Tensor scores = by_entry(gate, own_, first_column()) + part_of_bias(bias, first_column());
    at::Tensor values = by_entry(kv, own_, first_column());
    if (overlap_) {
      const at::Tensor earlier =
          (by_entry(gate, before_, 0) + part_of_bias(bias, 0))
              .masked_fill_(table_.opens.view({-1, 1, 1}), -std::numeric_limits<double>::infinity());
      scores = at::cat({earlier, scores}, 1);
      values = at::cat({by_entry(kv, before_, 0), values}, 1);
    }
    return (values * at::softmax(scores, 1)).sum(1);
  }

 private:
  int64_t first_column() const { return overlap_ ? width_ : 0; }
  at::Tensor by_entry(const at::Tensor& x, const at::Tensor& rows, int64_t column) const {
    return at::index_select(x.narrow(1, column, width_), 0, rows)
        .to(accumulation_dtype(x.scalar_type()))
        .view({table_.count, table_.rate, width_});
  }
  at::Tensor part_of_bias(const at::Tensor& bias, int64_t column) const {
    return bias.narrow(1, column, width_).to(accumulation_dtype(bias.scalar_type()));
  }

  const EntryTable& table_;
  int64_t width_;
  bool overlap_;
  at::Tensor own_, before_;  // int64 [entries * rate]: rows of tokens
};

}  // namespace

at::Tensor pooled_entries(const at::Tensor& kv, const at::Tensor& gate, const at::Tensor& bias,
                          const std::shared_ptr<const EntryTable>& table, bool overlap) {
  const auto pool = [=](std::span<const at::Tensor> in, bool) {
    if (in[0].is_meta()) return at::empty({table->count, in[0].size(1) / (overlap ? 2 : 1)}, in[0].options());
    return Pool(*table, overlap, in[0].size(1)).sums(in[0], in[1], in[2]).to(in[0].scalar_type());
  };
  const auto cost = [](std::span<const at::Tensor> in, bool backward) {
    record_recurrence(backward ? "heddle::pooled_entries_backward" : "heddle::pooled_entries",
                      {&in[0], &in[1]}, in[0], static_cast<double>(in[0].size(1)), backward);
  };
  return model::recomputed("PooledEntriesBackward", {kv, gate}, {bias}, pool, cost);
}

}  // namespace heddle::decoder

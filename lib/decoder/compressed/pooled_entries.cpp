// Rows of tokens by entries, and a softmax over the tokens of each.
#include "lib/decoder/compressed/pooled_entries.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "heddle/model/autograd_node.h"
#include "lib/decoder/recurrence/recurrence_cost.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {
namespace {

using model::Gradients;
using model::wide_of;

// Wide, [entries, tokens of an entry, width of an entry].
struct Slots {
  at::Tensor kv, shares;
};

class Pool {
 public:
  Pool(const EntryTable& table, bool overlap, int64_t width)
      : table_(table), width_(overlap ? width / 2 : width), overlap_(overlap) {
    const at::Tensor within = at::arange(table.rate, table.first.options());
    own_ = (table.first.unsqueeze(1) + within).reshape({-1});
    if (overlap) before_ = (own_ - table.rate).clamp_min_(0);
  }

  Slots slots(const at::Tensor& kv, const at::Tensor& gate, const at::Tensor& bias) const {
    at::Tensor scores = by_entry(gate, own_, first_column()) + part_of_bias(bias, first_column());
    at::Tensor values = by_entry(kv, own_, first_column());
    if (overlap_) {
      const at::Tensor earlier =
          (by_entry(gate, before_, 0) + part_of_bias(bias, 0))
              .masked_fill_(table_.opens.view({-1, 1, 1}), -std::numeric_limits<double>::infinity());
      scores = at::cat({earlier, scores}, 1);
      values = at::cat({by_entry(kv, before_, 0), values}, 1);
    }
    return {values, at::softmax(scores, 1)};
  }
  // From the gradient of slots to that of the tokens, in the shape and dtype of `like`.
  at::Tensor to_tokens(const at::Tensor& slots, const at::Tensor& like) const {
    const at::Tensor out = at::zeros(like.sizes(), slots.options());
    const auto add = [&](const at::Tensor& part, const at::Tensor& rows, int64_t column) {
      out.narrow(1, column, width_).index_add_(0, rows, part.reshape({-1, width_}));
    };
    add(overlap_ ? slots.narrow(1, table_.rate, table_.rate) : slots, own_, first_column());
    // Shares of the first entry of a document are 0 there.
    if (overlap_) add(slots.narrow(1, 0, table_.rate), before_, 0);
    return out.to(like.scalar_type());
  }
  at::Tensor to_bias(const at::Tensor& slots) const {
    const at::Tensor sum = slots.sum(0);
    return overlap_ ? at::cat({sum.narrow(0, 0, table_.rate), sum.narrow(0, table_.rate, table_.rate)}, 1)
                    : sum;
  }

 private:
  int64_t first_column() const { return overlap_ ? width_ : 0; }
  at::Tensor by_entry(const at::Tensor& x, const at::Tensor& rows, int64_t column) const {
    return at::index_select(x.narrow(1, column, width_), 0, rows)
        .to(wide_of(x.scalar_type()))
        .view({table_.count, table_.rate, width_});
  }
  at::Tensor part_of_bias(const at::Tensor& bias, int64_t column) const {
    return bias.narrow(1, column, width_).to(wide_of(bias.scalar_type()));
  }

  const EntryTable& table_;
  int64_t width_;
  bool overlap_;
  at::Tensor own_, before_;  // int64 [entries * rate]: rows of tokens
};

void record_pool(const char* name, const at::Tensor& kv, const at::Tensor& gate, bool backward) {
  record_recurrence(name, {&kv, &gate}, kv, static_cast<double>(kv.size(1)), backward);
}

// Edges: kv, gate, bias.
struct PooledEntriesNode final : model::LayerNode {
  PooledEntriesNode() : LayerNode("PooledEntriesBackward") {}
  model::Saved kv, gate, bias;
  std::shared_ptr<const EntryTable> table;
  bool overlap = false;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor values = kv.unpack(), scores = gate.unpack(), b = bias.unpack();
    if (values.is_meta()) {
      record_pool("heddle::pooled_entries_backward", values, scores, /*backward=*/true);
      return {at::empty_like(values), at::empty_like(scores), at::empty_like(b)};
    }
    const Pool pool(*table, overlap, values.size(1));
    const Slots slots = pool.slots(values, scores, b);
    const at::Tensor d = gradients[0].to(slots.kv.scalar_type()).unsqueeze(1);
    const at::Tensor of_shares = d * slots.kv * slots.shares;
    const at::Tensor of_scores = of_shares - slots.shares * of_shares.sum(1, true);
    return {pool.to_tokens(d * slots.shares, values), pool.to_tokens(of_scores, scores),
            pool.to_bias(of_scores).to(b.scalar_type())};
  }
  void release_variables() override {
    for (model::Saved* one : {&kv, &gate, &bias}) one->reset();
  }
};

}  // namespace

at::Tensor pooled_entries(const at::Tensor& kv, const at::Tensor& gate, const at::Tensor& bias,
                          const std::shared_ptr<const EntryTable>& table, bool overlap) {
  const auto save = [&](PooledEntriesNode& node) {
    node.kv.save(kv);
    node.gate.save(gate);
    node.bias.save_weight(bias);
    node.table = table;
    node.overlap = overlap;
  };
  const auto compute = [&] {
    if (kv.is_meta()) {
      record_pool("heddle::pooled_entries", kv, gate, /*backward=*/false);
      return at::empty({table->count, kv.size(1) / (overlap ? 2 : 1)}, kv.options());
    }
    const Slots slots = Pool(*table, overlap, kv.size(1)).slots(kv, gate, bias);
    return (slots.kv * slots.shares).sum(1).to(kv.scalar_type());
  };
  return model::forward_with<PooledEntriesNode>(save, compute, kv, gate, bias);
}

}  // namespace heddle::decoder

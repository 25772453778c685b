// Joins the attentions over two ranges of keys.
#include "lib/decoder/compressed/window_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <cmath>

#include "heddle/model/autograd_node.h"
#include "heddle/nn/attention_layout.h"
#include "heddle/ops/compute_log.h"
#include "lib/nn/attention/attend_composite.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {
namespace {

using model::accumulation_dtype;
using model::BlockedGradients;
using model::BlockedInputs;
using model::Gradients;
using model::Operator;

model::BlockedShape shape_of(int64_t head_dim) {
  return {head_dim, head_dim, 1 / std::sqrt(static_cast<double>(head_dim))};
}

BlockedInputs over_tokens(const WindowInputs& in, const EntryTable& table) {
  return {in.q, in.kv, in.kv, table.tokens};
}

BlockedInputs over_entries(const WindowInputs& in, const EntryTable& table) {
  return {in.q, in.entries, in.entries, table.entries.host};
}

bool has_entries(const WindowInputs& in) {
  return in.entries.defined() && in.entries.size(0) > 0;
}

// Records the products with the scores of tokens and entries, as a device computes them without documents.
void record_window(const WindowInputs& in, const EntryTable& table, bool backward) {
  if (!records_operators()) return;
  const auto queries = static_cast<double>(in.q.size(0)), width = static_cast<double>(in.q.size(1));
  const double entries =
      in.chosen.defined() ? static_cast<double>(in.chosen.size(1)) : static_cast<double>(table.most) / 2;
  const double seen = static_cast<double>(table.window) + entries;
  const auto bytes =
      static_cast<double>(in.q.nbytes() + in.kv.nbytes() + (in.entries.defined() ? in.entries.nbytes() : 0));
  record_operator(
      "heddle::window_attention",
      {(backward ? 10 : 4) * queries * width * seen, bytes, static_cast<double>(in.q.nbytes())},
      ProductShape{1, in.q.size(0), static_cast<int64_t>(seen), in.q.size(1), in.q.scalar_type()});
}

at::Tensor attended(const WindowInputs& in, int64_t head_dim, const EntryTable& table, at::Tensor& log_sums) {
  const model::BlockedShape shape = shape_of(head_dim);
  const at::ScalarType wide = accumulation_dtype(in.q.scalar_type());
  log_sums = at::empty({in.q.size(1) / head_dim, in.q.size(0)}, in.q.options().dtype(wide));
  const at::Tensor out = at::empty(in.q.sizes(), in.q.options().dtype(wide));
  model::attend_ranges(over_tokens(in, table), shape, out, log_sums);
  if (has_entries(in)) {
    if (in.chosen.defined())
      model::attend_composite(over_entries(in, table), table.entries, shape, out, log_sums, /*onto=*/true,
                              in.chosen);
    else
      model::attend_ranges(over_entries(in, table), shape, out, log_sums, /*onto=*/true);
  }
  model::add_sinks(in.sinks, out, log_sums);
  return out.to(in.q.scalar_type());
}

// Edges: q, kv, entries, sinks.
struct WindowAttentionNode final : model::LayerNode {
  WindowAttentionNode() : LayerNode("WindowAttentionBackward") {}
  model::Saved q, kv, entries, sinks, chosen, out, log_sums;
  std::shared_ptr<const EntryTable> table;
  int64_t head_dim = 0;
  std::array<at::ScalarType, 3> dtypes{};  // input dtypes of q, kv and entries

  Gradients backward(Gradients&& gradients) override {
    WindowInputs in{q.unpack(), kv.unpack(), entries.unpack(), sinks.unpack(), {}};
    if (in.q.is_meta()) {
      record_window(in, *table, /*backward=*/true);
      return {at::empty_like(in.q), at::empty_like(in.kv),
              in.entries.defined() ? at::empty_like(in.entries) : at::Tensor(), at::empty_like(in.sinks)};
    }
    in.chosen = chosen.unpack();
    const at::Tensor d_out = gradients[0].to(in.q.scalar_type()).contiguous(), result = out.unpack();
    const at::Tensor sums = log_sums.unpack();
    Gradients all(4);
    all[0] = at::zeros(in.q.sizes(), sums.options());
    all[1] = through(in, in.kv, d_out, result, sums, all[0], /*tokens=*/true).to(dtypes[1]);
    if (has_entries(in))
      all[2] = through(in, in.entries, d_out, result, sums, all[0], /*tokens=*/false).to(dtypes[2]);
    else if (in.entries.defined())
      all[2] = at::empty_like(in.entries).to(dtypes[2]);
    all[0] = all[0].to(dtypes[0]);
    all[3] = model::sink_gradient(in.sinks, d_out, result, sums);
    return all;
  }
  // Adds to the gradient of q. Returns the gradient of the keys, which are also values, in the accumulation
  // dtype.
  at::Tensor through(const WindowInputs& in, const at::Tensor& keys, const at::Tensor& d_out,
                     const at::Tensor& result, const at::Tensor& sums, const at::Tensor& d_q, bool tokens) {
    const model::BlockedShape shape = shape_of(head_dim);
    const at::Tensor d_k = at::zeros(keys.sizes(), sums.options()),
                     d_v = at::zeros(keys.sizes(), sums.options());
    const BlockedGradients into{d_q, d_k, d_v};
    const BlockedInputs of = tokens ? over_tokens(in, *table) : over_entries(in, *table);
    if (!tokens && in.chosen.defined())
      model::attend_composite_backward(of, table->entries, shape, d_out, result, sums, into, /*add=*/true,
                                       in.chosen);
    else
      model::attend_ranges_backward(of, shape, d_out, result, sums, into, /*add=*/true);
    return d_k.add_(d_v);
  }
  void release_variables() override {
    for (model::Saved* one : {&q, &kv, &entries, &sinks, &chosen, &out, &log_sums}) one->reset();
  }
};

struct WindowResult {
  at::Tensor y, log_sums;
};

WindowResult forward_of(const WindowInputs& in, int64_t head_dim, const EntryTable& table) {
  WindowResult all;
  if (in.q.is_meta()) {
    all.y = model::once(Operator::attention, [&] {
      record_window(in, table, /*backward=*/false);
      return at::empty(in.q.sizes(), in.q.options());
    });
    all.log_sums = model::once(Operator::attention, [&] {
      return at::empty({in.q.size(1) / head_dim, in.q.size(0)},
                       in.q.options().dtype(accumulation_dtype(in.q.scalar_type())));
    });
    return all;
  }
  all.y = model::once(Operator::attention, [&] { return attended(in, head_dim, table, all.log_sums); });
  all.log_sums = model::once(Operator::attention, [&] { return std::move(all.log_sums); });
  return all;
}

// Converts to the dtype of autocast with contiguous rows, below autograd.
at::Tensor readable(const at::Tensor& x) {
  const at::Tensor cast = model::under_autocast(x);
  if (!cast.defined()) return cast;
  const model::BelowAutograd below;
  return cast.contiguous();
}

}  // namespace

at::Tensor window_attention(const WindowInputs& given, int64_t head_dim,
                            const std::shared_ptr<const EntryTable>& table) {
  const WindowInputs in{readable(given.q), readable(given.kv), readable(given.entries), given.sinks,
                        given.chosen};
  std::shared_ptr<WindowAttentionNode> node;
  if (torch::autograd::compute_requires_grad(given.q, given.kv, given.entries, given.sinks)) {
    node = model::make_node<WindowAttentionNode>(given.q, given.kv, given.entries, given.sinks);
    node->q.save(in.q);
    node->kv.save(in.kv);
    node->entries.save(in.entries);
    node->sinks.save_weight(in.sinks);
    node->chosen.save(in.chosen);
    node->table = table;
    node->head_dim = head_dim;
    node->dtypes = {given.q.scalar_type(), given.kv.scalar_type(),
                    (given.entries.defined() ? given.entries : given.kv).scalar_type()};
  }
  WindowResult all;
  {
    const model::BelowAutograd below;
    all = forward_of(in, head_dim, *table);
  }
  if (!node) return all.y;
  node->out.save_output(all.y);
  node->log_sums.save(all.log_sums);
  torch::autograd::set_history(all.y, node);
  return all.y;
}

}  // namespace heddle::decoder

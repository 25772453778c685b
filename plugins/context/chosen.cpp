// Attention over selected keys: an all-gather of keys and selections, and the head exchange of mixers.
#include <ATen/ops/empty.h>

#include <vector>

#include "attention.h"
#include "heddle/model/autograd_node.h"

namespace heddle::context {

at::Tensor gathered(const at::Tensor& own, const WholeRows& rows) {
  const model::BelowAutograd below;
  const at::Tensor all = at::empty({rows.ranks->size() * own.size(0), own.size(1)}, own.options());
  rows.ranks->all_gather(all, own.contiguous())->wait();
  return rows_at(all, rows.order.whole);
}

at::Tensor attend_over_chosen(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const model::Heads& heads, const std::shared_ptr<const WholeRows>& rows,
                              const Attend& attend) {
  const int64_t groups = k.size(1) / heads.head_dim;
  const model::HeadRange all{groups, q.size(1) / k.size(1)};
  const std::vector<model::HeadRange> ranges = deal_heads(all, rows->ranks->size());
  const model::SequenceInputs whole = to_whole_rows({{q}, {k, v}}, all, ranges, rows);
  model::Heads own = heads;
  own.sequence *= rows->ranks->size();
  own.chosen = gathered(heads.chosen, *rows);
  if (heads.sinks.defined())
    own.sinks = model::rows_of_heads(heads.sinks, all, ranges[static_cast<size_t>(rows->ranks->rank())]);
  const at::Tensor y = attend(whole.of_heads[0].contiguous(), whole.of_groups[0].contiguous(),
                              whole.of_groups[1].contiguous(), own);
  return to_own_rows(y, all, ranges, rows);
}

}  // namespace heddle::context

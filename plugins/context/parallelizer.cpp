// The cut of the batch, and the link in the attention cores.
#include "parallelizer.h"

#include <string>
#include <utility>

#include "heads.h"
#include "heddle/base/error.h"
#include "heddle/model/autograd_node.h"
#include "heddle/model/module.h"
#include "heddle/model/router.h"

namespace heddle::context {
namespace {

constexpr const char* kAxis = "cp";

// Of the counts that a router's balance loss is made of: its ranks hold other tokens of the same rows.
at::Tensor sum_of_ranks(const at::Tensor& counts, Communicator& ranks) {
  const model::BelowAutograd below;
  at::Tensor sum = counts.clone();
  ranks.all_reduce(sum)->wait();
  return sum;
}

}  // namespace

Needs ContextParallel::needs() const {
  Needs needs;
  needs.axes = {kAxis};
  return needs;
}

AttentionCore::Instead::LinkPointer ContextParallel::link(Communicator& ranks) {
  if (deals_heads()) {
    const auto around = [&ranks](at::Tensor q, at::Tensor k, at::Tensor v, const model::Heads& heads,
                                 const Batch& batch, const AttentionCore::Instead::Next& next) {
      model::Heads dealt = heads;
      dealt.sequence *= ranks.size();
      q = to_own_heads(q, heads, ranks);
      k = to_own_heads(k, heads, ranks);
      v = to_own_heads(v, heads, ranks);
      return to_own_tokens(next(std::move(q), std::move(k), std::move(v), dealt, batch), heads, ranks);
    };
    return AttentionCore::Instead::around("context", 0, around);
  }
  exchange_ = config_.context.method == "ring" ? make_ring(ranks) : make_gathered(ranks);
  const auto in_place = [exchange = exchange_.get()](at::Tensor q, at::Tensor k, at::Tensor v,
                                                     const model::Heads& heads, const Batch&) {
    return context::attend(q, k, v, heads, *exchange);
  };
  return AttentionCore::Instead::in_place("context", in_place);
}

std::vector<Placed> ContextParallel::apply(Units& units, const DeviceMesh& mesh) {
  if (mesh.size(kAxis) == 1) return {};
  Communicator& ranks = mesh.group(kAxis);
  const auto own = link(ranks);
  const auto counted = Router::Total::around("context", 0, [&ranks](at::Tensor counts, const auto& next) {
    return sum_of_ranks(next(std::move(counts)), ranks);
  });
  for (const auto& unit : units) {
    if (unit->module() == nullptr)
      throw Error(ErrorCode::config, "distributed.cp_size",
                  "the unit '" + std::string(unit->name()) +
                      "' is foreign: context parallelism cannot see its attention",
                  "set cp_size: 1, or build the unit of heddle's modules");
    unit->module()->visit("", [&](const std::string&, Module& module) {
      if (auto* core = dynamic_cast<AttentionCore*>(&module)) core->instead.add(own);
      if (auto* router = dynamic_cast<Router*>(&module)) router->total.add(counted);
    });
  }
  return {};
}

void ContextParallel::transform(Batch& batch, const DeviceMesh& mesh) {
  if (mesh.size(kAxis) == 1) return;
  cut(batch, {mesh.rank(kAxis), mesh.size(kAxis), deals_heads() ? Cut::contiguous : Cut::head_tail});
}

}  // namespace heddle::context

// The cut of the batch, and the link in the attention cores.
#include "parallelizer.h"

#include <string>
#include <utility>

#include "heads.h"
#include "heddle/base/error.h"
#include "heddle/model/autograd_node.h"
#include "heddle/model/module.h"
#include "heddle/nn/router.h"

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
      q = to_own_heads(q, heads, heads.head_dim, ranks);
      k = to_own_heads(k, heads, heads.head_dim, ranks);
      v = to_own_heads(v, heads, heads.value_dim(), ranks);
      if (heads.sinks.defined()) {
        const int64_t own = heads.sinks.size(0) / ranks.size();
        dealt.sinks = heads.sinks.narrow(0, ranks.rank() * own, own);
      }
      return to_own_tokens(next(std::move(q), std::move(k), std::move(v), dealt, batch), heads, ranks);
    };
    return AttentionCore::Instead::around("context", 0, around);
  }
  exchange_ = config_.context.method == "ring" ? make_ring(ranks) : make_gathered(ranks);
  const auto in_place = [this](at::Tensor q, at::Tensor k, at::Tensor v, const model::Heads& heads,
                               const Batch& batch) {
    return context::attend(q, k, v, {heads, rows(batch), place_.rank}, *exchange_);
  };
  return AttentionCore::Instead::in_place("context", in_place);
}

// Layers of one microbatch share it.
std::shared_ptr<const Rows> ContextParallel::rows(const Batch& batch) {
  const RowsKey key{batch.documents, batch.tokens.size(0), whole_sequence_of(batch)};
  if (rows_ == nullptr || !key.documents.is_same(rows_key_.documents) || key.rows != rows_key_.rows ||
      key.length != rows_key_.length) {
    rows_ = std::make_shared<const Rows>(rows_of(batch, place_));
    rows_key_ = key;
  }
  return rows_;
}

std::vector<Placed> ContextParallel::apply(Units& units, const DeviceMesh& mesh) {
  if (mesh.size(kAxis) == 1) return {};
  Communicator& ranks = mesh.group(kAxis);
  place_ = {mesh.rank(kAxis), mesh.size(kAxis), deals_heads() ? Cut::contiguous : Cut::balanced};
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
      if (auto* router = dynamic_cast<Router*>(&module)) {
        if (router->config().jitter != 0)
          throw Error(ErrorCode::not_built, "distributed.cp_size",
                      "a router's jitter is not built under context parallelism: it follows from whole rows",
                      "set router_jitter_noise: 0, or cp_size: 1");
        router->total.add(counted);
      }
      auto* core = dynamic_cast<AttentionCore*>(&module);
      if (core == nullptr) return;
      core->instead.add(own);
      place_.pads_apart = place_.pads_apart || !core->options().causal;
    });
  }
  return {};
}

void ContextParallel::transform(Batch& batch, const DeviceMesh& mesh) {
  if (mesh.size(kAxis) > 1) cut(batch, place_);
}

}  // namespace heddle::context

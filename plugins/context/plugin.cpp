// Context parallelism: each rank of cp holds a part of each sequence.
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention.h"
#include "checks.h"
#include "config.h"
#include "heads.h"
#include "heddle/base/error.h"
#include "heddle/model/autograd_node.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/device_ops.h"
#include "heddle/nn/router.h"
#include "heddle/nn/sequence_core.h"
#include "heddle/parallel/parallelizer.h"
#include "heddle/sdk.h"
#include "mixers.h"
#include "sequence.h"

namespace heddle::context {
namespace {

class ContextParallel : public IParallelizer {
 public:
  explicit ContextParallel(Config config) : config_(std::move(config)) {}
  Needs needs() const override;
  void check(Units& units, const Sizes& sizes) override;
  // Replaces the computation of every AttentionCore and wraps that of every SequenceCore. Splits no
  // parameter.
  std::vector<Placed> apply(Units& units, const DeviceMesh& mesh) override;
  std::optional<int> transform_order() const override { return 200; }
  void transform(Batch& batch, const DeviceMesh& mesh) override;

 private:
  // All tokens of an Ulysses group, for some of their heads.
  struct Dealt {
    at::Tensor q, k, v;
    model::Heads heads;
  };

  void meet(const DeviceMesh& mesh);
  AttentionCore::Instead::LinkPointer link(Communicator& all);
  Dealt deal(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const model::Heads& heads) const;
  void add_links(Units& units, Communicator& ranks);
  SequenceCore::Instead::LinkPointer sequence_link(Communicator& ranks);
  std::shared_ptr<const Rows> rows(const Batch& batch);
  std::shared_ptr<const WholeRows> whole_rows(const Batch& batch, Communicator& ranks);

  // Key of the cached rows. It holds the tensor, so that no other tensor gets its address.
  struct RowsKey {
    at::Tensor documents;
    int64_t rows = 0, length = 0;
  };

  const Config config_;
  int cp_ = 0;  // 0: not set yet
  Place place_;
  std::array<std::unique_ptr<Communicator>, 2> own_groups_;  // groups of ring_ulysses
  Communicator* ulysses_group_ = nullptr;                    // null: heads are not split
  Communicator* ring_ = nullptr;                             // null: all keys are on this rank
  RowsKey rows_key_;
  std::shared_ptr<const Rows> rows_;
  std::shared_ptr<const WholeRows> whole_rows_;  // built from rows_ on first use
  std::unique_ptr<Exchange> exchange_;           // null without a ring
};

constexpr const char* kAxis = "cp";

// Sums the counts of a router's balance loss. The ranks of cp hold different tokens of the same rows.
at::Tensor sum_of_ranks(const at::Tensor& counts, Communicator& ranks) {
  const model::BelowAutograd below;
  at::Tensor sum = counts.clone();
  ranks.all_reduce(sum)->wait();
  return sum;
}

Needs ContextParallel::needs() const {
  Needs needs;
  needs.axes = {kAxis};
  return needs;
}

void ContextParallel::check(Units& units, const Sizes& sizes) {
  cp_ = sizes.cp;
  check_units(units, config_.context, cp_, sizes.tp);
}

// Neighboring ranks form an Ulysses group, which splits heads. Each group holds a part of the sequence, and
// ranks in equal positions of their groups form a ring.
void ContextParallel::meet(const DeviceMesh& mesh) {
  const int cp = mesh.size(kAxis), rank = mesh.rank(kAxis);
  const int ulysses_size = static_cast<int>(config_.context.ulysses_ranks(cp));
  place_ = {rank / ulysses_size, cp / ulysses_size, Cut::balanced, rank % ulysses_size, ulysses_size};
  if (ulysses_size == cp) place_ = {rank, cp, Cut::contiguous};
  ulysses_group_ = ulysses_size == cp ? &mesh.group(kAxis) : nullptr;
  ring_ = ulysses_size == 1 ? &mesh.group(kAxis) : nullptr;
  if (ulysses_size == 1 || ulysses_size == cp) return;
  const std::vector<int> ranks = mesh.ranks(kAxis);
  std::vector<int> neighbours, apart;
  for (int other = 0; other < cp; ++other) {
    if (other / ulysses_size == rank / ulysses_size) neighbours.push_back(ranks[static_cast<size_t>(other)]);
    if (other % ulysses_size == rank % ulysses_size) apart.push_back(ranks[static_cast<size_t>(other)]);
  }
  own_groups_[0] = mesh.rendezvous().group("cp_ulysses", neighbours);
  own_groups_[1] = mesh.rendezvous().group("cp_ring", apart);
  ulysses_group_ = own_groups_[0].get();
  ring_ = own_groups_[1].get();
}

// Attention over selected keys splits its heads among all ranks, whatever the method.
AttentionCore::Instead::LinkPointer ContextParallel::link(Communicator& all) {
  if (ring_ == nullptr) {
    const auto around = [this, &all](at::Tensor q, at::Tensor k, at::Tensor v, const model::Heads& heads,
                                     const Batch& batch, const AttentionCore::Instead::Next& next) {
      if (heads.chosen.defined())
        return attend_over_chosen(q, k, v, heads, whole_rows(batch, all),
                                  [&](const auto& by, const auto& to, const auto& of, const auto& some) {
                                    return next(by, to, of, some, batch);
                                  });
      const Dealt own = deal(q, k, v, heads);
      return to_own_tokens(next(own.q, own.k, own.v, own.heads, batch), heads, *ulysses_group_);
    };
    return AttentionCore::Instead::around("context", 0, around);
  }
  exchange_ = config_.context.method == "allgather" ? make_gathered(*ring_) : make_ring(*ring_);
  const auto in_place = [this, &all](at::Tensor q, at::Tensor k, at::Tensor v, const model::Heads& heads,
                                     const Batch& batch) {
    if (heads.chosen.defined())
      return attend_over_chosen(q, k, v, heads, whole_rows(batch, all),
                                [&](const auto& by, const auto& to, const auto& of, const auto& some) {
                                  return model::attend(by, to, of, some, batch.documents);
                                });
    if (ulysses_group_ == nullptr)
      return context::attend(q, k, v, {heads, rows(batch), place_.rank}, *exchange_);
    const Dealt own = deal(q, k, v, heads);
    const at::Tensor y =
        context::attend(own.q, own.k, own.v, {own.heads, rows(batch), place_.rank}, *exchange_);
    return to_own_tokens(y, heads, *ulysses_group_);
  };
  return AttentionCore::Instead::in_place("context", in_place);
}

ContextParallel::Dealt ContextParallel::deal(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const model::Heads& heads) const {
  const int ranks = ulysses_group_->size();
  for (const at::Tensor* of : {&q, &k}) check_heads(of->size(1) / heads.head_dim, config_.context, cp_);
  Dealt out{to_own_heads(q, heads, *ulysses_group_), to_own_heads(k, heads, *ulysses_group_),
            to_own_heads(v, heads, *ulysses_group_), heads};
  out.heads.sequence *= ranks;
  if (heads.sinks.defined()) {
    const int64_t own = heads.sinks.size(0) / ranks;
    out.heads.sinks = heads.sinks.narrow(0, ulysses_group_->rank() * own, own);
  }
  return out;
}

// Cached, because all layers of a microbatch use it.
std::shared_ptr<const Rows> ContextParallel::rows(const Batch& batch) {
  const RowsKey key{batch.documents, batch.tokens.size(0), whole_sequence_of(batch)};
  if (rows_ == nullptr || !key.documents.is_same(rows_key_.documents) || key.rows != rows_key_.rows ||
      key.length != rows_key_.length) {
    rows_ = std::make_shared<const Rows>(rows_of(batch, place_));
    rows_key_ = key;
    whole_rows_.reset();
  }
  return rows_;
}

// Cached like rows().
std::shared_ptr<const WholeRows> ContextParallel::whole_rows(const Batch& batch, Communicator& ranks) {
  const int64_t tokens = batch.tokens.numel();
  if (tokens * ranks.size() != batch.tokens.size(0) * whole_sequence_of(batch))
    throw Error(ErrorCode::internal, "context", "the rows of the batch are not split",
                "call transform() first");
  const std::shared_ptr<const Rows> rows = this->rows(batch);
  if (whole_rows_ != nullptr) return whole_rows_;
  const RowOrder order = rows->order(place_.pieces);
  const at::Device device = batch.tokens.device();
  return whole_rows_ = std::make_shared<const WholeRows>(
             WholeRows{{model::sent_to(order.whole, device), model::sent_to(order.parts, device)},
                       order.parts.narrow(0, ranks.rank() * tokens, tokens),
                       &ranks});
}

SequenceCore::Instead::LinkPointer ContextParallel::sequence_link(Communicator& ranks) {
  const auto around = [this, &ranks](const model::SequenceInputs& in, const model::HeadRange& all,
                                     const Batch& batch, const SequenceCore::Instead::Next& next) {
    const std::vector<model::HeadRange> ranges = deal_heads(all, ranks.size());
    const std::shared_ptr<const WholeRows> rows = whole_rows(batch, ranks);
    const model::HeadRange& mine = ranges[static_cast<size_t>(ranks.rank())];
    return to_own_rows(next(to_whole_rows(in, all, ranges, rows), mine, batch), all, ranges, rows);
  };
  return SequenceCore::Instead::around("context", 0, around);
}

std::vector<Placed> ContextParallel::apply(Units& units, const DeviceMesh& mesh) {
  if (mesh.size(kAxis) == 1) return {};
  cp_ = mesh.size(kAxis);
  check_units(units, config_.context, cp_, mesh.size(kSplitAxis));
  meet(mesh);
  Communicator& ranks = mesh.group(kAxis);
  const auto counted = Router::Total::around("context", 0, [&ranks](at::Tensor counts, const auto& next) {
    return sum_of_ranks(next(std::move(counts)), ranks);
  });
  model::each<Router>(units, [&](const std::string&, Router& router) {
    if (router.config().jitter != 0)
      throw Error(
          ErrorCode::not_built, "distributed.cp_size",
          "router jitter is not built under context parallelism, because its noise is drawn for whole rows",
          "set router_jitter_noise: 0, or cp_size: 1");
    router.total.add(counted);
  });
  add_links(units, ranks);
  return {};
}

void ContextParallel::add_links(Units& units, Communicator& ranks) {
  const auto own = link(ranks);
  model::each<AttentionCore>(units, [&](const std::string&, AttentionCore& core) {
    core.instead.add(own);
    place_.pads_apart = place_.pads_apart || !core.options().causal;
  });
  const auto dealt = sequence_link(ranks);
  model::each<SequenceCore>(units, [&](const std::string&, SequenceCore& core) { core.instead.add(dealt); });
  const auto gather =
      RowGather::Instead::in_place("context", [this, &ranks](at::Tensor own_rows, const Batch& batch) {
        const std::shared_ptr<const WholeRows> rows = whole_rows(batch, ranks);
        return model::GatheredRows{gathered(own_rows, *rows), rows->places};
      });
  model::each<RowGather>(units, [&](const std::string&, RowGather& core) { core.instead.add(gather); });
}

void ContextParallel::transform(Batch& batch, const DeviceMesh& mesh) {
  if (mesh.size(kAxis) > 1) cut(batch, place_);
}

}  // namespace
}  // namespace heddle::context

HEDDLE_PLUGIN("context", "0.1.0", "section context", "parallelizer context") {
  plugin.section("context", "cp_size", heddle::context::method_schema()).idle_warning =
      "`distributed.context` is set but cp_size={n} (<= 1): the sequence is not split and the section is "
      "ignored";
  plugin.parallelizer<heddle::context::ContextParallel>("context", heddle::context::schema());
}

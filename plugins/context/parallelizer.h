// Context parallelism: each rank of cp holds a part of each sequence.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attention.h"
#include "checks.h"
#include "config.h"
#include "heddle/nn/sequence_core.h"
#include "heddle/parallel/parallelizer.h"
#include "mixers.h"
#include "sequence.h"

namespace heddle::context {

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

}  // namespace heddle::context

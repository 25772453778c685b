// Context parallelism: the ranks of cp hold parts of each sequence.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "attention.h"
#include "config.h"
#include "heddle/parallel/parallelizer.h"
#include "sequence.h"

namespace heddle::context {

class ContextParallel : public IParallelizer {
 public:
  explicit ContextParallel(Config config) : config_(std::move(config)) {}
  Needs needs() const override;
  // Replaces the computation of every AttentionCore; splits no parameter.
  std::vector<Placed> apply(Units& units, const DeviceMesh& mesh) override;
  std::optional<int> transform_order() const override { return 200; }
  void transform(Batch& batch, const DeviceMesh& mesh) override;

 private:
  bool deals_heads() const { return config_.context.method == "ulysses"; }
  AttentionCore::Instead::LinkPointer link(Communicator& ranks);
  std::shared_ptr<const Rows> rows(const Batch& batch);

  // What kept rows were made for; the tensor too, so that no other gets its address.
  struct RowsKey {
    at::Tensor documents;
    int64_t rows = 0, length = 0;
  };

  const Config config_;
  Place place_;
  RowsKey rows_key_;
  std::shared_ptr<const Rows> rows_;
  std::unique_ptr<Exchange> exchange_;  // of allgather and ring
};

}  // namespace heddle::context

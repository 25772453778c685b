// The gradients of a flat bucket, packed into one buffer and reduce-scattered. For layouts in which each rank
// has an equal part of a buffer, and gradients without special dtypes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "heddle/sharding/bucket.h"

namespace heddle::sharding {

// Sums gradients in the dtype of the parameters. Microbatches accumulate in the leaves.
class FlatGradients final : public Gradients {
 public:
  // Parameter i is at [begins[i], begins[i] + numel) of the bucket; all are trainable. held: this rank's
  // part, flat; the shards of the parameters are views of it.
  FlatGradients(std::vector<Parameter> parameters, std::vector<int64_t> begins, const at::Tensor& held,
                const Groups& groups);

  void begin_step() override;
  std::unique_ptr<Work> reduce() override;
  void reduced() override;
  std::unique_ptr<Work> reduce_replicas() override;
  bool had(size_t i) const override { return had_[i] != 0; }
  const Groups* groups() const override { return &groups_; }
  void place(std::span<const char> used) override;

 private:
  std::vector<Parameter> parameters_;
  std::vector<int64_t> begins_;
  std::vector<std::vector<at::Tensor>> boxes_;  // boxes of the parameters' shards, as views of sum_
  at::Tensor sum_;                              // [part], summed over ranks and microbatches
  at::Tensor packed_, arrived_;                 // buffers of the reduction in flight
  std::vector<char> had_;
  Groups groups_;
};

}  // namespace heddle::sharding

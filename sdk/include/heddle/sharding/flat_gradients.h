// The gradients of a flat bucket: packed into one buffer and reduce-scattered. For layouts in which each rank
// holds an equal part of a buffer, with plain gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "heddle/sharding/bucket.h"

namespace heddle::sharding {

// Gradients are summed in the parameters' dtype; microbatches accumulate on the leaves.
class FlatGradients final : public Gradients {
 public:
  // Parameter i is at [begins[i], begins[i] + numel) of the bucket; all are trainable. `held` is this
  // rank's part, flat; the parameters' shards are views of it.
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
  std::vector<std::vector<at::Tensor>> boxes_;  // of the parameters' shards, in the sum
  at::Tensor sum_;                              // [part], over ranks and microbatches
  at::Tensor packed_, arrived_;                 // in flight
  std::vector<char> had_;
  Groups groups_;
};

}  // namespace heddle::sharding

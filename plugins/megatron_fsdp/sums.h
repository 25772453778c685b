// Reduction of a bucket's gradients over the ranks: wire dtypes, division, collectives.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "heddle/sharding/bucket.h"
#include "options.h"

namespace heddle::megatron_fsdp {

// Reduction settings that all buckets with one reduction share.
class Sums {
 public:
  // `divisor`: divisor of averages for all parameters, which is the number of ranks that dense parameters are
  // summed over.
  Sums(const Options& options, const sharding::Groups& groups, int divisor)
      : options_(options), groups_(groups), divisor_(divisor) {}

  bool has_replicas() const { return groups_.across != nullptr; }
  // Returns the factor that converts an average to the sum. 1 without averaging.
  int divisor() const { return options_.averaging == Averaging::none ? 1 : divisor_; }

  // Sum over the ranks of the shard group.
  struct Inner {
    at::Tensor wire, received;  // received: from an all-to-all
    std::unique_ptr<Work> work;
  };
  // `whole`: the gradients, of which this rank keeps `part` if `split` is set.
  Inner start(const at::Tensor& whole, Range part, Split split) const;
  // Returns this rank's part after the work is done.
  at::Tensor own(Inner& inner, Range part) const;

  struct Outer {  // sum over replicas
    at::Tensor wire;
    std::unique_ptr<Work> work;
  };
  // `held`: the part of the sum that this rank keeps, if `split.outer`.
  Outer start_outer(const at::Tensor& sum, Range held, Split split) const;

 private:
  at::Tensor to_wire(const at::Tensor& tensor, double factor) const;
  bool averages(at::ScalarType gradients) const;  // in the collective
  double factor(at::ScalarType gradients) const;  // before the collective

  Options options_;
  sharding::Groups groups_;
  int divisor_;
};

}  // namespace heddle::megatron_fsdp

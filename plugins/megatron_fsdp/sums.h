// How a bucket's gradients are summed over the ranks: dtypes on the wire, division, collectives.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "heddle/sharding/bucket.h"
#include "options.h"

namespace heddle::megatron_fsdp {

// Common to all buckets with one reduction.
class Sums {
 public:
  // `divisor`: of an average, the same for all parameters: the ranks that the dense ones are summed over.
  Sums(const Options& options, const sharding::Groups& groups, int divisor)
      : options_(options), groups_(groups), divisor_(divisor) {}

  bool has_replicas() const { return groups_.across != nullptr; }
  // What an average is multiplied by to become the sum; 1 without averaging.
  int divisor() const { return options_.averaging == Averaging::none ? 1 : divisor_; }

  // A sum over the ranks that split.
  struct Inner {
    at::Tensor wire, received;  // received: of an all-to-all
    std::unique_ptr<Work> work;
  };
  // `whole`: the gradients, of which this rank keeps `part` if `split` is set.
  Inner start(const at::Tensor& whole, Range part, Split split) const;
  // This rank's part, when the work is done.
  at::Tensor own(Inner& inner, Range part) const;

  struct Outer {  // a sum over replicas
    at::Tensor wire;
    std::unique_ptr<Work> work;
  };
  // `held`: the part of the sum that this rank keeps, if `split.outer`.
  Outer start_outer(const at::Tensor& sum, Range held, Split split) const;

 private:
  at::Tensor to_wire(const at::Tensor& tensor, double factor) const;
  bool averages(at::ScalarType gradients) const;  // in the collective
  double factor(at::ScalarType gradients) const;  // before it

  Options options_;
  sharding::Groups groups_;
  int divisor_;
};

}  // namespace heddle::megatron_fsdp

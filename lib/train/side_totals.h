// The side outputs of all ranks together, reduced with the loss.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "heddle/mesh/device_mesh.h"
#include "heddle/model/side_outputs.h"

namespace heddle::train {

// One sum over all ranks replaces the loss's own sums over data and stages; maxima cost one more collective.
// Of ranks with the same values all but one contribute zeros; that the values are the same is checked with
// numbers in the same sum.
class SideTotals {
 public:
  // Throws Error{mesh} naming the output, for an axis that the mesh does not have or has only parts of.
  SideTotals(std::shared_ptr<const SideLayout> layout, const DeviceMesh& mesh);

  // Begins with this rank's sum of token losses (fp64 [1]) and side outputs.
  void start(const at::Tensor& loss, const SideOutputs& mine);
  // Divisors of losses: the counts of the whole step.
  struct Counts {
    double label_tokens = 0, microbatches = 0;
  };
  // Waits and returns the values; `loss` becomes the sum over all ranks. Throws Error{plugin_failed} on every
  // rank for an output whose values differ along axes that it does not name; on a device only in the first
  // call, which waits for it.
  SideValues finish(const Counts& counts, at::Tensor& loss);

 private:
  std::shared_ptr<const SideLayout> layout_;
  Communicator* ranks_;  // of the world; null: one
  struct Counted {
    bool mine = true;     // this rank's part counts
    int copies = 1;       // ranks that must have the same values, this one among them
    std::string axes;     // along which they are
    int64_t checked = 0;  // where its two numbers for the check begin, if there are copies
  };
  static int64_t number_count(const SideSpec& spec);
  void add_checks(const at::Tensor& sums) const;
  void check(const at::Tensor& sums) const;
  int64_t numbers_ = 0;          // of the check, all entries together
  bool checked_ = false;         // once
  std::vector<Counted> counts_;  // [entry]
  bool loss_counts_;
  at::Tensor sums_, maxima_;
  std::unique_ptr<heddle::Work> summing_, finding_;
};

}  // namespace heddle::train

// Gradients of several parameters in one flat buffer that is summed over the ranks in one call.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "heddle/sdk.h"

namespace heddle::ddp {

// After the gradients the buffer holds one flag for each parameter: how many ranks had a gradient. So a
// parameter that no rank used stays without one.
class Bucket {
 public:
  // `members`: the numbers of the parameters, as many as leaves; `ranks` sum them.
  Bucket(std::vector<int> members, std::vector<at::Tensor> leaves, const Communicator& ranks);

  const std::vector<int>& members() const { return members_; }
  // Whether this rank had a gradient at the step's launch.
  bool had(int index) const { return entries_[index].had; }

  void begin();       // a step begins without gradients
  void begin_here();  // a step begins, and autograd adds straight into the buffer
  void launch(Communicator& ranks);
  void finish();  // the sums become the leaves' gradients

  int owed = 0;  // gradients still expected in the last backward of the step

 private:
  struct Entry {
    at::Tensor leaf, view;
    uint32_t version = 0;  // of the view when the step began
    bool had = false;      // this rank had a gradient
  };
  void pack(Entry& entry);

  std::vector<int> members_;
  std::vector<Entry> entries_;
  at::Tensor buffer_, flags_;
  std::unique_ptr<Work> work_;
};

// Assigns leaves to buckets, in this order of their numbers; each dtype has its own. A bucket is closed when
// it has reached its size, and buckets come in the order in which they were closed. Returns their members.
std::vector<std::vector<int>> deal(const std::vector<at::Tensor>& leaves, const std::vector<int64_t>& order,
                                   int64_t first_bytes, int64_t bytes);

}  // namespace heddle::ddp

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
  explicit Bucket(std::vector<at::Tensor> leaves);

  int size() const { return static_cast<int>(entries_.size()); }
  const at::Tensor& leaf(int index) const { return entries_[index].leaf; }

  void begin();       // a step begins without gradients
  void begin_here();  // a step begins, and autograd adds straight into the buffer
  void launch(Communicator& ranks);
  void finish();  // the sums become the leaves' gradients

  int arrived = 0;  // gradients that came in the last backward of the step

 private:
  struct Entry {
    at::Tensor leaf, view;
    uint32_t version = 0;  // of the view when the step began
    bool had = false;      // this rank had a gradient
  };
  void pack(Entry& entry);

  std::vector<Entry> entries_;
  at::Tensor buffer_, flags_;
  std::unique_ptr<Work> work_;
};

// Deals the leaves to buckets in the order given; each dtype has its own. A bucket is closed when it has
// reached its size, and buckets come in the order in which they were closed.
std::vector<std::vector<at::Tensor>> deal(const std::vector<at::Tensor>& leaves, int64_t first_bytes,
                                          int64_t bytes);

}  // namespace heddle::ddp

// Gradients of several parameters in one flat buffer that one all-reduce sums.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "heddle/sdk.h"

namespace heddle::ddp {

// After the gradients the buffer holds one flag per parameter: the number of ranks that had a gradient. A
// parameter that no rank used gets no gradient.
class Bucket {
 public:
  // `members`: numbers of the parameters, one per leaf. `ranks`: group that sums the gradients.
  Bucket(std::vector<int> members, std::vector<at::Tensor> leaves, const Communicator& ranks);

  const std::vector<int>& members() const { return members_; }
  // Returns whether this rank had a gradient when the reduction of the step was launched.
  bool had(int index) const { return entries_[index].had; }

  void begin();       // starts a step without gradients
  void begin_here();  // starts a step in which autograd adds into the buffer
  void launch(Communicator& ranks);
  void finish();  // assigns the sums to the leaves' gradients

  int owed = 0;  // gradients still expected in the last backward of the step

 private:
  struct Entry {
    at::Tensor leaf, view;
    uint32_t version = 0;  // of the view at the start of the step
    bool had = false;      // this rank had a gradient
  };
  void pack(Entry& entry);

  std::vector<int> members_;
  std::vector<Entry> entries_;
  at::Tensor buffer_, flags_;
  std::unique_ptr<Work> work_;
};

// Assigns leaves to buckets of one dtype, in the order of the numbers in `order`. A bucket is closed when it
// reaches its size. Returns the members of each bucket, in the order in which buckets were closed.
std::vector<std::vector<int>> deal(const std::vector<at::Tensor>& leaves, const std::vector<int64_t>& order,
                                   int64_t first_bytes, int64_t bytes);

}  // namespace heddle::ddp

// Sums gradients over the ranks behind the backward: a reduce-scatter a group, in one fixed order on every
// rank.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "gradients.h"

namespace heddle::fsdp2 {

// Groups become ready in any order, and on some ranks never; they are launched in the order given here, so
// that collectives agree. At most two reduce buffers are alive, each as large as the largest group.
class Reducer {
 public:
  // All of them are sharded, and have Gradients::scatters set.
  explicit Reducer(std::vector<Gradients*> order);

  void expect_last();                // the next flush ends the step, so sums over replicas may start
  void ready(Gradients& gradients);  // all its gradients have come
  void flush();                      // launches what is left of this backward, ready or not
  void finish();                     // waits, and sums over the replicas

 private:
  struct Entry {
    Gradients* gradients;
    bool ready = false;
    std::unique_ptr<Work> replicas;
  };
  struct Slot {
    std::vector<at::Tensor> inputs, outputs;  // [turn]: the starts of one buffer a dtype, made when used
    Gradients* busy = nullptr;
    bool adds = false;  // the output comes on top of what earlier microbatches left
    bool last = false;
    std::unique_ptr<Work> work;
  };
  const at::Tensor& piece(std::vector<at::Tensor>& pieces, const Gradients& gradients, int64_t ranks) const;
  void launch(Gradients& gradients);
  void settle(Slot& slot);

  std::vector<Entry> order_;
  size_t next_ = 0;
  bool last_ = false;
  std::array<Slot, 2> slots_;
  size_t turn_ = 0;
};

}  // namespace heddle::fsdp2

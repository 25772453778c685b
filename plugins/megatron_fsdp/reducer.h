// Sums gradients over the ranks behind the backward, bucket after bucket in one order on every rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "checks.h"
#include "gradients.h"

namespace heddle::megatron_fsdp {

// Buckets become ready in any order, and on some ranks never; they are launched in the order given here, so
// that collectives agree.
class Reducer {
 public:
  // `shards` is a communicator of its own: where gradients are missing, sums come later than on other ranks.
  // `limit`: elements in flight, though one bucket is always let through.
  Reducer(const Options& options, const Ranks& ranks, std::unique_ptr<Communicator> shards,
          std::vector<Gradients*> order, int64_t limit, Checks checks);

  void expect_last() { last_ = true; }        // the next flush ends the step, so sums over replicas may start
  void ready(Gradients& gradients);           // all its gradients have come
  void wait_for(const Gradients& gradients);  // until its buffer can take gradients again
  void flush();                               // launches what is left, ready or not
  void finish();                              // waits for everything

 private:
  struct InFlight {
    Gradients* gradients;
    at::Tensor wire, received;  // received: of an all-to-all
    bool last = false;
    std::unique_ptr<Work> work;
  };
  struct Outer {  // a sum over replicas
    at::Tensor sum, wire, part;
    std::unique_ptr<Work> work;
  };
  void launch(Gradients& gradients);
  void post(InFlight& one);
  void settle();  // the oldest
  at::Tensor own_sum(InFlight& one) const;
  void start_outer(Gradients& gradients);
  void finish_outer(Outer& outer) const;
  at::Tensor to_wire(const at::Tensor& tensor, double factor) const;
  bool averages(at::ScalarType gradients) const;  // in the collective

  Options options_;
  Ranks ranks_;
  std::unique_ptr<Communicator> shards_;
  std::vector<Gradients*> order_;
  std::vector<bool> ready_;
  int64_t limit_, in_flight_ = 0;
  Checks checks_;
  size_t next_ = 0;
  bool last_ = false;
  std::deque<InFlight> flying_;
  std::deque<Outer> outer_;
  std::vector<int64_t> rows_;  // of an all-to-all
};

}  // namespace heddle::megatron_fsdp

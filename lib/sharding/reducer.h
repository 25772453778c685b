// Sums gradients over the ranks during the backward, bucket after bucket in one order on every rank.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "heddle/sharding/model.h"
#include "heddle/sharding/stage.h"

namespace heddle::sharding {

// Buckets become ready in any order, and on some ranks never; they are launched in the order given here, so
// that collectives agree.
class Reducer {
 public:
  Reducer(const Model& model, const Policy& policy);

  void ready(Gradients& gradients);           // all its gradients have come
  void wait_for(const Gradients& gradients);  // until its reduction is done
  // Launches the remaining buckets, ready or not. `last`: nothing more comes in this step, so the sums over
  // replicas may follow.
  void flush(bool last);
  void expect_last() { last_ = true; }  // buckets that become ready from now on do so for the last time
  void finish();                        // waits for everything
  void abandon() noexcept;              // waits and ignores errors

 private:
  struct InFlight {
    Gradients* gradients;
    std::unique_ptr<Work> work;
    bool last = false;
  };
  void launch(Gradients& gradients);
  void settle();  // the oldest

  std::vector<Gradients*> order_;
  size_t most_;
  int64_t limit_, elements_ = 0;
  size_t next_ = 0;
  bool last_ = false;
  std::deque<InFlight> flying_, across_;  // over the ranks that split; over the replicas
};

}  // namespace heddle::sharding

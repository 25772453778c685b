// ring: keys and values travel from rank to rank while products run (Liu, Zaharia and Abbeel 2023). No rank
// holds more than two parts of them.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "attention.h"

namespace heddle::context {
namespace {

constexpr int kParts = 0, kGradients = 1;  // tags

class Ring final : public Exchange {
 public:
  explicit Ring(Communicator& ranks) : ranks_(ranks) {}

  void forward(Joined& joined, const at::Tensor& own, const model::Heads& heads) const override {
    at::Tensor here = own;
    for (int step = 0; step < ranks_.size(); ++step) {
      Turn turn = step + 1 < ranks_.size() ? pass_on(here, kParts) : Turn{};
      joined.add(both_by_head(here, heads), sight(ranks_.rank(), owner(step), heads.sequence));
      here = turn.arrived();
    }
  }

  // The gradient of a part is sent one step after it, and one step further: back to its owner.
  at::Tensor backward(const AttentionGradient& gradient, at::Tensor& d_queries, const at::Tensor& own,
                      const model::Heads& heads) const override {
    at::Tensor here = own;
    Turn sums;
    for (int step = 0; step < ranks_.size(); ++step) {
      Turn turn = step + 1 < ranks_.size() ? pass_on(here, kParts) : Turn{};
      at::Tensor mine = at::zeros(own.sizes(), gradient.log_sums.options());
      KeysValues into = both_by_head(mine, heads);
      gradient.add(both_by_head(here, heads), sight(ranks_.rank(), owner(step), heads.sequence), d_queries,
                   into);
      if (step > 0) mine.add_(sums.arrived());
      sums = pass_on(mine, kGradients);
      here = turn.arrived();
    }
    return sums.arrived();
  }

 private:
  // One tensor to the next rank, and one of the same shape from the rank before.
  struct Turn {
    at::Tensor coming;
    std::unique_ptr<Work> received, sent;
    at::Tensor arrived() {
      if (!received) return {};
      std::exchange(received, nullptr)->wait();
      std::exchange(sent, nullptr)->wait();
      return std::move(coming);
    }
  };
  Turn pass_on(const at::Tensor& here, int tag) const {
    const int size = ranks_.size(), rank = ranks_.rank();
    Turn turn;
    turn.coming = at::empty_like(here);
    turn.received = ranks_.receive(turn.coming, (rank + size - 1) % size, tag);
    turn.sent = ranks_.send(here, (rank + 1) % size, tag);
    return turn;
  }
  // The rank whose part is here at a step.
  int owner(int step) const { return (ranks_.rank() + ranks_.size() - step) % ranks_.size(); }

  Communicator& ranks_;
};

}  // namespace

std::unique_ptr<Exchange> make_ring(Communicator& ranks) {
  return std::make_unique<Ring>(ranks);
}

}  // namespace heddle::context

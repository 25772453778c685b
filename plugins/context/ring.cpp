// The method ring: keys and values go from rank to rank while products run (Liu, Zaharia and Abbeel 2023). A
// rank holds at most two parts of them.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <utility>
#include <vector>

#include "attention.h"
#include "flight.h"
#include "heddle/mesh/call.h"

namespace heddle::context {
namespace {

constexpr int kParts = 0, kGradients = 1;  // tags

class Ring final : public Exchange {
 public:
  explicit Ring(Communicator& ranks) : ranks_(ranks) {
    std::vector<mesh::TransferPair> transfers;
    for (int from = 0; from < ranks.size(); ++from) transfers.emplace_back(from, (from + 1) % ranks.size());
    mesh::connect(ranks_, transfers);
  }

  void forward(Joined& joined, const at::Tensor& own) const override {
    at::Tensor here = own;
    for (int step = 0; step < ranks_.size(); ++step) {
      Turn turn = step + 1 < ranks_.size() ? pass_on(here, kParts) : Turn{};
      joined.add(here, owner(step));
      here = turn.arrived();
    }
  }

  // The gradient of a part follows the part one step later, and takes one last step to the owner of the part.
  at::Tensor backward(const AttentionGradient& gradient, const at::Tensor& own) const override {
    at::Tensor here = own;
    Turn sums;
    for (int step = 0; step < ranks_.size(); ++step) {
      Turn turn = step + 1 < ranks_.size() ? pass_on(here, kParts) : Turn{};
      at::Tensor mine = at::zeros(own.sizes(), gradient.log_sums.options());
      gradient.add(here, owner(step), mine);
      if (step > 0) mine.add_(sums.arrived());
      sums = pass_on(mine, kGradients);
      here = turn.arrived();
    }
    return sums.arrived();
  }

 private:
  // Sends one tensor to the next rank and receives one of the same shape from the previous rank. Even ranks
  // send first: a transfer may block until its peer joins, so neighbors must not both begin by sending.
  struct Turn {
    at::Tensor coming;
    Flight received, sent;
    at::Tensor arrived() {
      received.wait();
      sent.wait();
      return std::move(coming);
    }
  };
  Turn pass_on(const at::Tensor& here, int tag) const {
    const int size = ranks_.size(), rank = ranks_.rank();
    Turn turn;
    turn.coming = at::empty_like(here);
    const auto send = [&] { turn.sent = Flight(ranks_.send(here, (rank + 1) % size, tag)); };
    if (rank % 2 == 0) send();
    turn.received = Flight(ranks_.receive(turn.coming, (rank + size - 1) % size, tag));
    if (rank % 2 != 0) send();
    return turn;
  }
  // Rank whose part is on this rank at `step`.
  int owner(int step) const { return (ranks_.rank() + ranks_.size() - step) % ranks_.size(); }

  Communicator& ranks_;
};

}  // namespace

std::unique_ptr<Exchange> make_ring(Communicator& ranks) {
  return std::make_unique<Ring>(ranks);
}

}  // namespace heddle::context

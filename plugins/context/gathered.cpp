// The method allgather: gathers keys and values of all ranks and reduce-scatters their gradients (Llama 3,
// 2024).
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "attention.h"
#include "flight.h"

namespace heddle::context {
namespace {

class Gathered final : public Exchange {
 public:
  explicit Gathered(Communicator& ranks) : ranks_(ranks) {}

  void forward(Joined& joined, const at::Tensor& own) const override {
    at::Tensor all = empty_for_all(own, own.scalar_type());
    Flight gather(ranks_.all_gather(all, own));
    joined.add(own, ranks_.rank());
    gather.wait();
    for (int other = 0; other < ranks_.size(); ++other)
      if (other != ranks_.rank()) joined.add(all[other], other);
  }

  at::Tensor backward(const AttentionGradient& gradient, const at::Tensor& own) const override {
    at::Tensor all = empty_for_all(own, own.scalar_type());
    Flight gather(ranks_.all_gather(all, own));
    const at::Tensor sums = empty_for_all(own, gradient.log_sums.scalar_type()).zero_();
    gradient.add(own, ranks_.rank(), sums[ranks_.rank()]);
    gather.wait();
    for (int other = 0; other < ranks_.size(); ++other)
      if (other != ranks_.rank()) gradient.add(all[other], other, sums[other]);
    at::Tensor mine = at::empty_like(sums[0]);
    ranks_.reduce_scatter(mine, sums)->wait();
    return mine;
  }

 private:
  at::Tensor empty_for_all(const at::Tensor& own, at::ScalarType dtype) const {
    return at::empty({ranks_.size(), own.size(0), own.size(1)}, own.options().dtype(dtype));
  }

  Communicator& ranks_;
};

}  // namespace

std::unique_ptr<Exchange> make_gathered(Communicator& ranks) {
  return std::make_unique<Gathered>(ranks);
}

}  // namespace heddle::context

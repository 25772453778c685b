// Exercise that every communicator passes: threads, Gloo and a world of one.
#include "transport/exercise.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <cstring>
#include <numeric>

namespace heddle::tests {
namespace {

constexpr int64_t kCounts[] = {0, 1, 2, 3, 7, 513, 4099, 70001};
const at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf,
                                 at::kLong,  at::kInt,    at::kByte};

std::string label(const char* operation, int64_t count, at::ScalarType type) {
  return std::string(operation) + " of " + std::to_string(count) + " " + c10::toString(type);
}

at::Tensor room(int64_t count, at::ScalarType type) {
  return at::full({count}, 77, type);
}

class Exercise {
 public:
  explicit Exercise(Communicator& group) : group_(group), rank_(group.rank()), size_(group.size()) {}

  void gather(int64_t count, at::ScalarType type) {
    std::vector<at::Tensor> parts;
    for (int r = 0; r < size_; ++r) parts.push_back(input(r, 1, count, type));
    auto out = room(count * size_, type);
    group_.all_gather(out, parts[rank_].clone())->wait();
    keep(label("all_gather", count, type), out, at::cat(parts));
    auto whole = room(count * size_, type);
    whole.narrow(0, rank_ * count, count).copy_(parts[rank_]);
    group_.all_gather(whole, whole.narrow(0, rank_ * count, count))->wait();
    keep(label("all_gather in place", count, type), whole, at::cat(parts));
  }

  void scatter_sum(int64_t count, at::ScalarType type) {
    auto out = room(count, type);
    group_.reduce_scatter(out, input(rank_, 2, count * size_, type))->wait();
    keep(label("reduce_scatter", count, type), out,
         expected(size_, 2, count * size_, type, Reduce::sum).narrow(0, rank_ * count, count));
    auto whole = input(rank_, 2, count * size_, type);
    const auto mine = whole.narrow(0, rank_ * count, count);
    group_.reduce_scatter(mine, whole, Reduce::average)->wait();
    keep(label("average in place", count, type), mine.clone(),
         expected(size_, 2, count * size_, type, Reduce::average).narrow(0, rank_ * count, count));
  }

  void reduce(int64_t count, at::ScalarType type, Reduce how) {
    auto inout = input(rank_, 3, count, type);
    group_.all_reduce(inout, how)->wait();
    constexpr const char* kLabels[] = {"all_reduce", "maximum", "average"};
    keep(label(kLabels[static_cast<int>(how)], count, type), inout, expected(size_, 3, count, type, how));
  }

  // all_to_all: rank s sends (s + 2 * t + shift) % 4 rows of `width` elements to rank t.
  void exchange(int64_t width, int shift, at::ScalarType type) {
    const auto rows = [&](int from, int to) -> int64_t { return (from + 2 * to + shift) % 4; };
    std::vector<int64_t> in_rows, out_rows;
    for (int r = 0; r < size_; ++r) in_rows.push_back(rows(rank_, r)), out_rows.push_back(rows(r, rank_));
    std::vector<at::Tensor> wanted = {at::empty({0, width}, type)};
    for (int from = 0; from < size_; ++from) {
      int64_t before = 0, all = 0;
      for (int to = 0; to < size_; ++to) {
        if (to < rank_) before += rows(from, to);
        all += rows(from, to);
      }
      wanted.push_back(
          input(from, 4, all * width, type).view({all, width}).narrow(0, before, rows(from, rank_)));
    }
    const auto sum = [](const std::vector<int64_t>& list) {
      return std::accumulate(list.begin(), list.end(), int64_t{0});
    };
    auto in = input(rank_, 4, sum(in_rows) * width, type).view({sum(in_rows), width});
    auto out = room(sum(out_rows) * width, type).view({sum(out_rows), width});
    group_.all_to_all(out, in, out_rows, in_rows)->wait();
    keep(label("all_to_all", width, type), out, at::cat(wanted));
  }

  void spread(int root, int64_t count, at::ScalarType type) {
    auto inout = input(rank_, 5, count, type);
    group_.broadcast(inout, root)->wait();
    keep(label("broadcast", count, type), inout, input(root, 5, count, type));
  }

  // Two messages around a ring. Even ranks send first, because a first transfer may block.
  void ring(int64_t count, at::ScalarType type) {
    if (size_ == 1) return;
    const int next = (rank_ + 1) % size_, last = (rank_ + size_ - 1) % size_;
    auto a = room(count, type), b = room(count, type);
    std::vector<std::unique_ptr<Work>> works;
    const auto send = [&] {
      works.push_back(group_.send(input(rank_, 6, count, type), next, 6));
      works.push_back(group_.send(input(rank_, 7, count, type), next, 7));
    };
    if (rank_ % 2 == 0) send();
    works.push_back(group_.receive(a, last, 6));
    works.push_back(group_.receive(b, last, 7));
    if (rank_ % 2 != 0) send();
    for (const auto& work : works) work->wait();
    keep(label("receive", count, type), a, input(last, 6, count, type));
    keep(label("second receive", count, type), b, input(last, 7, count, type));
  }

  // Two messages around a ring, received in reverse order.
  void tagged(int64_t count, at::ScalarType type) {
    if (size_ == 1) return;
    const int next = (rank_ + 1) % size_, last = (rank_ + size_ - 1) % size_;
    auto a = room(count, type), b = room(count, type);
    auto sent_a = group_.send(input(rank_, 6, count, type), next, 6);
    auto sent_b = group_.send(input(rank_, 7, count, type), next, 7);
    auto got_b = group_.receive(b, last, 7), got_a = group_.receive(a, last, 6);
    got_b->wait(), got_a->wait(), sent_a->wait(), sent_b->wait();
    keep(label("tagged receive", count, type), a, input(last, 6, count, type));
    keep(label("second tagged receive", count, type), b, input(last, 7, count, type));
  }

  // Several concurrent collectives, waited for in reverse order on odd ranks.
  void overlap(int64_t count) {
    std::vector<at::Tensor> inouts;
    std::vector<std::unique_ptr<Work>> works;
    for (int i = 0; i < 6; ++i) {
      inouts.push_back(input(rank_, 8 + i, count, at::kFloat));
      works.push_back(group_.all_reduce(inouts.back()));
    }
    for (int i = 0; i < 6; ++i) works[rank_ % 2 == 0 ? i : 5 - i]->wait();
    for (int i = 0; i < 6; ++i) {
      keep(label("overlapped all_reduce", count, at::kFloat), inouts[i],
           expected(size_, 8 + i, count, at::kFloat, Reduce::sum));
    }
  }

  std::vector<Outcome> outcomes;

 private:
  void keep(std::string what, const at::Tensor& got, const at::Tensor& wanted) {
    outcomes.push_back({std::move(what), got, wanted});
  }

  Communicator& group_;
  const int rank_, size_;
};

}  // namespace

at::Tensor input(int rank, int seed, int64_t count, at::ScalarType type) {
  auto tensor = at::empty({count}, at::kDouble);
  auto* values = tensor.mutable_data_ptr<double>();
  const bool whole = !at::isFloatingType(type);
  uint64_t state = 88172645463325252ULL + 7919 * rank + 104729 * seed;
  for (int64_t i = 0; i < count; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const int64_t word = static_cast<int64_t>(state % 2000003);
    values[i] = whole ? static_cast<double>(word % 40) : (static_cast<double>(word) - 1000001.0) / 31337.0;
  }
  return tensor.to(type);
}

at::Tensor expected(int size, int seed, int64_t count, at::ScalarType type, Reduce reduce) {
  const bool short_float = type == at::kBFloat16 || type == at::kHalf;
  const at::ScalarType running = short_float ? at::kFloat : type;
  auto sum = input(0, seed, count, type).to(running);
  for (int rank = 1; rank < size; ++rank) {
    const auto part = input(rank, seed, count, type).to(running);
    sum = reduce == Reduce::max ? sum.maximum(part) : sum.add(part);
  }
  if (reduce == Reduce::average) sum = at::isFloatingType(type) ? sum.div(size) : sum.div(size, "trunc");
  return sum.to(type);
}

std::vector<Outcome> exercise(Communicator& group, Tags tags) {
  Exercise run(group);
  for (const at::ScalarType type : kTypes) {
    for (const int64_t count : kCounts) {
      run.gather(count, type);
      run.scatter_sum(count, type);
      run.reduce(count, type, Reduce::sum);
      run.reduce(count, type, Reduce::max);
      run.reduce(count, type, Reduce::average);
      run.spread(group.size() - 1, count, type);
      run.ring(count, type);
      if (tags == Tags::any_order) run.tagged(count, type);
    }
    for (const int shift : {0, 1, 2, 3}) run.exchange(5, shift, type);
    run.exchange(1031, 1, type);
  }
  for (const int64_t count : {1, 4099, 300007}) run.overlap(count);
  return run.outcomes;
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  const auto x = a.contiguous(), y = b.contiguous();
  return x.scalar_type() == y.scalar_type() && x.nbytes() == y.nbytes() &&
         (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

std::string bytes(const std::vector<Outcome>& outcomes) {
  std::string all;
  for (const Outcome& outcome : outcomes) {
    const auto got = outcome.got.contiguous();
    all.append(static_cast<const char*>(got.const_data_ptr()), got.nbytes());
  }
  return all;
}

std::unique_ptr<Work> repeat(Communicator& group, const mesh::Call& call, const at::Tensor& out,
                             const at::Tensor& in) {
  switch (call.operation) {
    case mesh::Operation::all_gather:
      return group.all_gather(out, in);
    case mesh::Operation::reduce_scatter:
      return group.reduce_scatter(out, in, call.reduce);
    case mesh::Operation::all_reduce:
      return group.all_reduce(out, call.reduce);
    case mesh::Operation::all_to_all:
      return group.all_to_all(out, in, call.out_rows, call.in_rows);
    case mesh::Operation::broadcast:
      return group.broadcast(out, call.peer);
    case mesh::Operation::send:
      return group.send(in, call.peer, call.tag);
    default:
      return group.receive(out, call.peer, call.tag);
  }
}

}  // namespace heddle::tests

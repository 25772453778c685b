// The rounds of collectives that only move bytes, and the choice of each.
#include "lib/transport/shm/shm_exchange.h"

#include <algorithm>
#include <string>

#include "lib/transport/shm/shm_sides.h"

namespace heddle::mesh {
namespace {

Sides sides_of(const Call& call, int rank, int size) {
  return {rank,
          size,
          static_cast<char*>(call.out.mutable_data_ptr()),
          static_cast<const char*>(call.in.const_data_ptr()),
          static_cast<size_t>(call.in.element_size()),
          call.in.scalar_type(),
          call.reduce};
}

class Gather : public Exchange {
 public:
  Gather(const Call& call, const Sides& sides, size_t room)
      : s_(sides), bytes_(call.in.nbytes()), whole_(call.out.nbytes()), room_(room) {
    rounds_ = pieces(bytes_, room);
  }
  size_t payload(int round) const override { return std::min(room_, bytes_ - round * room_); }
  const char* source(int round) const override { return s_.in + round * room_; }
  void put(int round, char* slot) override { copy(slot, s_.in + round * room_, payload(round)); }
  void keep(int round) override {
    const size_t at = round * room_;
    copy_out(s_.out + s_.rank * bytes_ + at, s_.in + at, payload(round), whole_);
  }
  void take(int round, const Part* parts) override {
    const size_t at = round * room_, count = payload(round);
    for (int step = 1; step < s_.size; ++step) {
      const int peer = (s_.rank + step) % s_.size;
      copy_out(s_.out + peer * bytes_ + at, parts[peer].bytes, count, whole_);
    }
  }

 private:
  const Sides s_;
  const size_t bytes_, whole_, room_;
};

class Spread : public Exchange {
 public:
  Spread(const Call& call, const Sides& sides, size_t room)
      : s_(sides), root_(call.peer), bytes_(call.out.nbytes()), room_(room) {
    rounds_ = pieces(bytes_, room);
  }
  size_t payload(int round) const override { return std::min(room_, bytes_ - round * room_); }
  // All ranks send once, so that two roots in one call are detected.
  bool speaks(int rank, int round) const override { return rank == root_ || round == 0; }
  const char* source(int round) const override { return s_.rank == root_ ? s_.in + round * room_ : nullptr; }
  void put(int round, char* slot) override {
    if (s_.rank == root_) copy(slot, s_.in + round * room_, payload(round));
  }
  void take(int round, const Part* parts) override {
    if (s_.rank != root_) copy_out(s_.out + round * room_, parts[root_].bytes, payload(round), bytes_);
  }

 private:
  const Sides s_;
  const int root_;
  const size_t bytes_, room_;
};

class Announce : public Exchange {
 public:
  Announce() { rounds_ = 1; }
  size_t payload(int round) const override { return 0; }
  void put(int round, char* slot) override {}
  void take(int round, const Part* parts) override {}
};

}  // namespace

Exchange::~Exchange() = default;

std::unique_ptr<Exchange> make_exchange(const Call& call, int rank, int size, size_t room, Memory memory) {
  if (call.operation == Operation::all_to_all) return std::make_unique<Announce>();
  const Sides sides = sides_of(call, rank, size);
  switch (call.operation) {
    case Operation::all_gather:
      return std::make_unique<Gather>(call, sides, room);
    case Operation::reduce_scatter:
      return make_scatter(call, sides, room);
    case Operation::all_reduce:
      return make_reduce(call, sides, room, memory);
    default:
      return std::make_unique<Spread>(call, sides, room);
  }
}

namespace {
constexpr int kReduceAt = 3, kTypeAt = 5, kPeerAt = 13, kCountAt = 29;
}

uint64_t encode_call(const Call& call) {
  const auto number = [](auto value) { return static_cast<uint64_t>(value); };
  const bool rows = call.operation == Operation::all_to_all;
  return number(call.operation) | number(call.reduce) << kReduceAt |
         number(call.in.scalar_type()) << kTypeAt | (number(call.peer) & 0xffff) << kPeerAt |
         (rows ? 0 : number(call.in.numel())) << kCountAt;
}

std::string describe(uint64_t code) {
  const auto operation = static_cast<Operation>(code & 7);
  const auto reduce = static_cast<Reduce>(code >> kReduceAt & 3);
  std::string text = name_of(operation);
  if (reduce == Reduce::max) text += " (max)";
  if (reduce == Reduce::average) text += " (average)";
  if (operation == Operation::broadcast) text += " from " + std::to_string(code >> kPeerAt & 0xffff);
  text += " of ";
  if (operation != Operation::all_to_all) text += std::to_string(code >> kCountAt) + " ";
  return text + c10::toString(static_cast<at::ScalarType>(code >> kTypeAt & 0xff));
}

}  // namespace heddle::mesh

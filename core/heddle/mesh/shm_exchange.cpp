// The rounds of each collective. Sums are taken in rank order, as in every communicator.
#include "heddle/mesh/shm_exchange.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "heddle/mesh/shm_copy.h"
#include "heddle/mesh/sums.h"

namespace heddle::mesh {
namespace {

constexpr int64_t kSmall = 32 * 1024;  // bytes up to which every rank adds up the whole of an all_reduce

char* bytes_of(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.mutable_data_ptr());
}
const char* const_bytes_of(const at::Tensor& tensor) {
  return static_cast<const char*>(tensor.const_data_ptr());
}

void copy(char* to, const char* from, size_t count) {
  if (count > 0 && to != from) std::memcpy(to, from, count);
}

// Into a tensor of `whole` bytes.
void copy_out(char* to, const char* from, size_t count, size_t whole) {
  if (whole < kFar) return copy(to, from, count);
  if (to != from) copy_far(to, from, count);
}

int pieces(size_t bytes, size_t piece) {
  return static_cast<int>((bytes + piece - 1) / piece);
}

// What the exchanges know of their group and their tensors.
struct Sides {
  int rank, size;
  char* out;
  const char* in;
  size_t element;
  at::ScalarType type;
  Reduce reduce;
};

Sides sides_of(const Call& call, int rank, int size) {
  return {rank,
          size,
          bytes_of(call.out),
          const_bytes_of(call.in),
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
  void put(int round, char* slot) override {
    const size_t at = round * room_, count = payload(round);
    copy(slot, s_.in + at, count);
    copy_out(s_.out + s_.rank * bytes_ + at, s_.in + at, count, whole_);
  }
  void take(int round, const char* const* slots) override {
    const size_t at = round * room_, count = payload(round);
    for (int step = 1; step < s_.size; ++step) {
      const int peer = (s_.rank + step) % s_.size;
      copy_out(s_.out + peer * bytes_ + at, slots[peer], count, whole_);
    }
  }

 private:
  const Sides s_;
  const size_t bytes_, whole_, room_;
};

// A slot holds a piece for every rank.
class Scatter : public Exchange {
 public:
  Scatter(const Call& call, const Sides& sides, size_t room)
      : s_(sides),
        bytes_(call.out.nbytes()),
        piece_(room / sides.size / sides.element * sides.element),
        parts_(sides.size) {
    rounds_ = pieces(bytes_, piece_);
  }
  size_t payload(int round) const override { return length(round) * s_.size; }
  void put(int round, char* slot) override {
    const size_t count = length(round);
    for (int peer = 0; peer < s_.size; ++peer) {
      if (peer != s_.rank) copy(slot + peer * count, s_.in + peer * bytes_ + round * piece_, count);
    }
  }
  void take(int round, const char* const* slots) override {
    const size_t count = length(round);
    for (int rank = 0; rank < s_.size; ++rank) {
      parts_[rank] = rank == s_.rank ? s_.in + rank * bytes_ + round * piece_ : slots[rank] + s_.rank * count;
    }
    combine(s_.out + round * piece_, parts_, static_cast<int64_t>(count / s_.element), s_.type, s_.reduce);
  }

 private:
  size_t length(int round) const { return std::min(piece_, bytes_ - round * piece_); }

  const Sides s_;
  const size_t bytes_, piece_;
  std::vector<const void*> parts_;
};

// Every rank puts the whole and adds up the whole.
class ReduceWhole : public Exchange {
 public:
  ReduceWhole(const Call& call, const Sides& sides, size_t room)
      : s_(sides), bytes_(call.in.nbytes()), room_(room), parts_(sides.size) {
    rounds_ = pieces(bytes_, room);
  }
  size_t payload(int round) const override { return std::min(room_, bytes_ - round * room_); }
  void put(int round, char* slot) override { copy(slot, s_.in + round * room_, payload(round)); }
  void take(int round, const char* const* slots) override {
    for (int rank = 0; rank < s_.size; ++rank)
      parts_[rank] = rank == s_.rank ? s_.in + round * room_ : slots[rank];
    combine(s_.out + round * room_, parts_, static_cast<int64_t>(payload(round) / s_.element), s_.type,
            s_.reduce);
  }

 private:
  const Sides s_;
  const size_t bytes_, room_;
  std::vector<const void*> parts_;
};

// Blocks of the tensor; every rank adds up its part of a block in one round and hands it out in a later one:
// sum 0, sum 1, hand 0, sum 2, hand 1, ..., so that nobody waits for a sum that was just put.
class ReduceSplit : public Exchange {
 public:
  ReduceSplit(const Call& call, const Sides& sides, size_t room)
      : s_(sides),
        count_(call.in.numel()),
        block_(static_cast<int64_t>(room / sides.element)),
        parts_(sides.size) {
    blocks_ = static_cast<int>((count_ + block_ - 1) / block_);
    rounds_ = 2 * blocks_;
  }
  size_t payload(int round) const override {
    const Turn turn = turn_of(round);
    return static_cast<size_t>(turn.hands ? longest(turn.block) : length(turn.block)) * s_.element;
  }
  int after(int round) const override {
    const Turn turn = turn_of(round);
    return turn.hands ? (turn.block == 0 ? 1 : 2 * turn.block) : 0;
  }
  void put(int round, char* slot) override {
    const auto [block, hands] = turn_of(round);
    char* start = s_.out + block * block_ * s_.element;
    if (hands) return copy(slot, start + at(block, s_.rank), at(block, s_.rank + 1) - at(block, s_.rank));
    copy(slot, start, at(block, s_.rank));
    const size_t next = at(block, s_.rank + 1);
    copy(slot + next, start + next, at(block, s_.size) - next);
  }
  void take(int round, const char* const* slots) override {
    const auto [block, hands] = turn_of(round);
    char* start = s_.out + block * block_ * s_.element;
    if (hands) {
      for (int step = 1; step < s_.size; ++step) {
        const int peer = (s_.rank + step) % s_.size;
        copy(start + at(block, peer), slots[peer], at(block, peer + 1) - at(block, peer));
      }
      return;
    }
    const size_t mine = at(block, s_.rank);
    for (int rank = 0; rank < s_.size; ++rank) parts_[rank] = (rank == s_.rank ? start : slots[rank]) + mine;
    const size_t count = (at(block, s_.rank + 1) - mine) / s_.element;
    combine(start + mine, parts_, static_cast<int64_t>(count), s_.type, s_.reduce);
  }

 private:
  struct Turn {
    int block;
    bool hands;
  };
  Turn turn_of(int round) const {
    if (round == 0) return {0, false};
    if (round == rounds_ - 1) return {blocks_ - 1, true};
    return round % 2 == 1 ? Turn{(round + 1) / 2, false} : Turn{round / 2 - 1, true};
  }
  int64_t length(int block) const { return std::min(block_, count_ - block * block_); }
  int64_t longest(int block) const { return (length(block) + s_.size - 1) / s_.size; }
  // Where a rank's part of a block starts, in bytes.
  size_t at(int block, int rank) const {
    return static_cast<size_t>(length(block) * rank / s_.size) * s_.element;
  }

  const Sides s_;
  const int64_t count_, block_;
  int blocks_ = 0;
  std::vector<const void*> parts_;
};

class Spread : public Exchange {
 public:
  Spread(const Call& call, const Sides& sides, size_t room)
      : s_(sides), root_(call.peer), bytes_(call.out.nbytes()), room_(room) {
    rounds_ = pieces(bytes_, room);
  }
  size_t payload(int round) const override { return std::min(room_, bytes_ - round * room_); }
  bool speaks(int rank) const override { return rank == root_; }
  void put(int round, char* slot) override { copy(slot, s_.in + round * room_, payload(round)); }
  void take(int round, const char* const* slots) override {
    if (s_.rank != root_) copy_out(s_.out + round * room_, slots[root_], payload(round), bytes_);
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
  void take(int round, const char* const* slots) override {}
};

}  // namespace

Exchange::~Exchange() = default;

std::unique_ptr<Exchange> make_exchange(const Call& call, int rank, int size, size_t room) {
  if (call.operation == Operation::all_to_all) return std::make_unique<Announce>();
  const Sides sides = sides_of(call, rank, size);
  switch (call.operation) {
    case Operation::all_gather:
      return std::make_unique<Gather>(call, sides, room);
    case Operation::reduce_scatter:
      return std::make_unique<Scatter>(call, sides, room);
    case Operation::all_reduce:
      // With two ranks both ways move the same bytes, and this one has no second half to wait for.
      if (size == 2 || static_cast<int64_t>(call.in.nbytes()) <= kSmall)
        return std::make_unique<ReduceWhole>(call, sides, room);
      return std::make_unique<ReduceSplit>(call, sides, room);
    default:
      return std::make_unique<Spread>(call, sides, room);
  }
}

namespace {
constexpr int kReduceAt = 3, kTypeAt = 5, kPeerAt = 13, kCountAt = 29;
}

uint64_t what_of(const Call& call) {
  const auto number = [](auto value) { return static_cast<uint64_t>(value); };
  const bool rows = call.operation == Operation::all_to_all;
  return number(call.operation) | number(call.reduce) << kReduceAt |
         number(call.in.scalar_type()) << kTypeAt | (number(call.peer) & 0xffff) << kPeerAt |
         (rows ? 0 : number(call.in.numel())) << kCountAt;
}

std::string describe(uint64_t what) {
  const auto operation = static_cast<Operation>(what & 7);
  const auto reduce = static_cast<Reduce>(what >> kReduceAt & 3);
  std::string text = name_of(operation);
  if (reduce == Reduce::max) text += " (max)";
  if (reduce == Reduce::average) text += " (average)";
  if (operation == Operation::broadcast) text += " from " + std::to_string(what >> kPeerAt & 0xffff);
  text += " of ";
  if (operation != Operation::all_to_all) text += std::to_string(what >> kCountAt) + " ";
  return text + c10::toString(static_cast<at::ScalarType>(what >> kTypeAt & 0xff));
}

}  // namespace heddle::mesh

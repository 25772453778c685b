// The rounds of collectives that add up, in rank order as in every communicator.
#include <algorithm>
#include <vector>

#include "core/mesh/sums.h"
#include "lib/transport/shm/shm_sides.h"

namespace heddle::mesh {
namespace {

// Bytes up to which every rank adds up the whole of an all_reduce; of two ranks.
constexpr int64_t kSmall = 32 * 1024, kPair = 128 * 1024;

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
  const char* source(int round) const override { return s_.in + round * piece_; }
  void put(int round, char* slot) override {
    const size_t count = length(round);
    for (int peer = 0; peer < s_.size; ++peer) {
      if (peer != s_.rank) copy(slot + peer * count, s_.in + peer * bytes_ + round * piece_, count);
    }
  }
  void take(int round, const Part* parts) override {
    const size_t count = length(round);
    for (int rank = 0; rank < s_.size; ++rank) {
      const bool packed = rank != s_.rank && parts[rank].where == Part::Where::in_slot;
      const char* start = rank == s_.rank ? s_.in + round * piece_ : parts[rank].bytes;
      parts_[rank] = start + s_.rank * (packed ? count : bytes_);
    }
    combine(s_.out + round * piece_, parts_, static_cast<int64_t>(count / s_.element), s_.type, s_.reduce);
  }

 private:
  size_t length(int round) const { return std::min(piece_, bytes_ - round * piece_); }

  const Sides s_;
  const size_t bytes_, piece_;
  std::vector<const void*> parts_;
};

// Every rank puts the whole and sums the whole.
class ReduceWhole : public Exchange {
 public:
  ReduceWhole(const Call& call, const Sides& sides, size_t room)
      : s_(sides), bytes_(call.in.nbytes()), room_(room), parts_(sides.size) {
    rounds_ = pieces(bytes_, room);
  }
  size_t payload(int round) const override { return std::min(room_, bytes_ - round * room_); }
  void put(int round, char* slot) override { copy(slot, s_.in + round * room_, payload(round)); }
  void take(int round, const Part* parts) override {
    for (int rank = 0; rank < s_.size; ++rank)
      parts_[rank] = rank == s_.rank ? s_.in + round * room_ : parts[rank].bytes;
    combine(s_.out + round * room_, parts_, static_cast<int64_t>(payload(round) / s_.element), s_.type,
            s_.reduce);
  }

 private:
  const Sides s_;
  const size_t bytes_, room_;
  std::vector<const void*> parts_;
};

// Blocks of the tensor; every rank sums its part of a block in one round and publishes it in a later one:
// sum 0, sum 1, hand 0, sum 2, hand 1, ..., so that no rank waits for a sum that was just put.
class ReduceSplit : public Exchange {
 public:
  ReduceSplit(const Sides& sides, int64_t count, size_t room)
      : s_(sides), count_(count), block_(static_cast<int64_t>(room / sides.element)), parts_(sides.size) {
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
  // A rank writes its part of a block, which the others read only once it is published, and the others' parts
  // when they are published; those ranks have then read this rank's.
  const char* source(int round) const override {
    const auto [block, hands] = turn_of(round);
    return s_.out + block * block_ * s_.element + (hands ? at(block, s_.rank) : 0);
  }
  void put(int round, char* slot) override {
    const auto [block, hands] = turn_of(round);
    char* start = s_.out + block * block_ * s_.element;
    if (hands) return copy(slot, start + at(block, s_.rank), at(block, s_.rank + 1) - at(block, s_.rank));
    copy(slot, start, at(block, s_.rank));
    const size_t next = at(block, s_.rank + 1);
    copy(slot + next, start + next, at(block, s_.size) - next);
  }
  void take(int round, const Part* parts) override {
    const auto [block, hands] = turn_of(round);
    char* start = s_.out + block * block_ * s_.element;
    if (hands) {
      for (int step = 1; step < s_.size; ++step) {
        const int peer = (s_.rank + step) % s_.size;
        copy(start + at(block, peer), parts[peer].bytes, at(block, peer + 1) - at(block, peer));
      }
      return;
    }
    const size_t mine = at(block, s_.rank);
    for (int rank = 0; rank < s_.size; ++rank)
      parts_[rank] = (rank == s_.rank ? start : parts[rank].bytes) + mine;
    const size_t count = (at(block, s_.rank + 1) - mine) / s_.element;
    combine(start + mine, parts_, static_cast<int64_t>(count), s_.type, s_.reduce);
  }

  struct Stretch {
    char* start;
    size_t bytes;
  };
  // Between two ranks: one after another in as many rounds.
  Stretch half(int round) const {
    const int block = round / 2, which = round % 2;
    return {s_.out + block * block_ * s_.element + at(block, which), at(block, which + 1) - at(block, which)};
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
  // Start of a rank's part of a block, in bytes.
  size_t at(int block, int rank) const {
    return static_cast<size_t>(length(block) * rank / s_.size) * s_.element;
  }

  const Sides s_;
  const int64_t count_, block_;
  int blocks_ = 0;
  std::vector<const void*> parts_;
};

// Between two ranks. If both share their tensors, each sums its half of a block, reading the other's in
// place, and then reads the sum of the other half: half the traffic between the cores. Otherwise each sums
// the whole from a copy. They tell each other with the first few elements.
class ReducePair : public Exchange {
 public:
  ReducePair(const Call& call, const Sides& sides, size_t room, Memory memory)
      : s_(sides), memory_(memory), count_(call.in.numel()), split_(rest(sides), count_ - kFirst, 2 * room) {
    rounds_ = 1 + split_.rounds();
  }
  size_t payload(int round) const override {
    if (round == 0) return kFirst * s_.element + sizeof(Memory);
    return split() ? split_.payload(round - 1) : split_.half(round - 1).bytes;
  }
  // A rank that shares its tensor waits for the other's decision.
  int after(int round) const override {
    if (round == 0) return 0;
    return split() ? 1 + split_.after(round - 1) : memory_ == Memory::shared ? 1 : 0;
  }
  const char* source(int round) const override {
    return round > 0 && split() ? split_.source(round - 1) : nullptr;
  }
  void put(int round, char* slot) override {
    if (round > 0 && split()) return split_.put(round - 1, slot);
    const auto [start, bytes] = piece(round);
    copy(slot, start, bytes);
    if (round == 0) std::memcpy(slot + bytes, &memory_, sizeof memory_);
  }
  void take(int round, const Part* parts) override {
    if (round > 0 && split()) return split_.take(round - 1, parts);
    const auto [start, bytes] = piece(round);
    const char* theirs = parts[1 - s_.rank].bytes;
    if (round == 0) std::memcpy(&their_memory_, theirs + bytes, sizeof their_memory_);
    const void* both[] = {s_.rank == 0 ? start : theirs, s_.rank == 0 ? theirs : start};
    combine(start, both, static_cast<int64_t>(bytes / s_.element), s_.type, s_.reduce);
  }

 private:
  static constexpr int64_t kFirst = 16;  // elements

  static Sides rest(Sides sides) {
    sides.out += kFirst * sides.element;
    sides.in = sides.out;
    return sides;
  }
  bool split() const { return memory_ == Memory::shared && their_memory_ == Memory::shared; }
  ReduceSplit::Stretch piece(int round) const {
    return round == 0 ? ReduceSplit::Stretch{s_.out, kFirst * s_.element} : split_.half(round - 1);
  }

  const Sides s_;
  const Memory memory_;
  Memory their_memory_ = Memory::own;
  const int64_t count_;
  ReduceSplit split_;
};

}  // namespace

std::unique_ptr<Exchange> make_scatter(const Call& call, const Sides& sides, size_t room) {
  return std::make_unique<Scatter>(call, sides, room);
}

std::unique_ptr<Exchange> make_reduce(const Call& call, const Sides& sides, size_t room, Memory memory) {
  if (static_cast<int64_t>(call.in.nbytes()) <= (sides.size == 2 ? kPair : kSmall))
    return std::make_unique<ReduceWhole>(call, sides, room);
  if (sides.size == 2) return std::make_unique<ReducePair>(call, sides, room, memory);
  return std::make_unique<ReduceSplit>(sides, call.in.numel(), room);
}

}  // namespace heddle::mesh

// Collectives as rounds: in each, ranks put a part of fixed size into their slot and read the others' slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "heddle/mesh/call.h"

namespace heddle::mesh {

// The location of a rank's part of a round.
struct Part {
  const char* bytes;
  // In the slot, packed by put(), or in that rank's shared tensor.
  enum class Where { in_slot, in_tensor } where;
};

// One collective of a group. All ranks make it from the same sizes, so they agree about its rounds.
class Exchange {
 public:
  virtual ~Exchange();
  int rounds() const { return rounds_; }
  virtual size_t payload(int round) const = 0;  // bytes that a rank puts into its slot
  virtual bool speaks(int rank, int round) const { return true; }
  // The number of rounds of this collective that must be read before this one can be put.
  virtual int after(int round) const { return 0; }
  // The address of the same bytes in this rank's tensor, where the others can read them in place of put();
  // null: not shared.
  virtual const char* source(int round) const { return nullptr; }
  virtual void put(int round, char* slot) = 0;
  virtual void keep(int round) {}  // this rank's own copy, while the others begin to read
  // parts: of every rank but this one; null for a rank that sends nothing.
  virtual void take(int round, const Part* parts) = 0;

 protected:
  int rounds_ = 0;
};

// Whether this rank's tensor is private or shared.
enum class Memory { own, shared };

// The rounds of a collective, each of `room` bytes at most. An all_to_all has one round without bytes: its
// rows travel between pairs of ranks.
std::unique_ptr<Exchange> make_exchange(const Call& call, int rank, int size, size_t room, Memory memory);

// Properties of a call that must be equal on all ranks, as a number and as a text: "all_reduce (max) of 12
// Float".
uint64_t encode_call(const Call& call);
std::string describe(uint64_t code);

}  // namespace heddle::mesh

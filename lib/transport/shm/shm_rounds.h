// The collectives of one group on this rank: which round it puts next, which it reads next.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "lib/transport/shm/shm_arena.h"
#include "lib/transport/shm/shm_exchange.h"

namespace heddle::mesh {

// A call that was posted; shared by the group's line and the Work.
struct Pending {
  Call call;
  int left = 0;  // parts of it that are under way
  bool done = false;
  std::exception_ptr fault = {};
  std::unique_ptr<Work> instead = {};  // the same call on another communicator, when there is no memory

  void finish_part() { done = --left == 0; }
};

constexpr int kSlots = 16;
constexpr size_t kSlotBytes = 128 * 1024;
constexpr size_t kApart = 16 * 1024;  // between slots, so that their beginnings are in different cache sets

// A rank's header of one round. A few bytes are in the cache line that others read anyway.
struct alignas(kLine) Slot {
  std::atomic<uint64_t> stamp{0};  // the round's number plus one, once it can be read
  uint64_t call_code = 0;          // of encode_call()
  uint64_t place = 0;  // in the owner's arena, of a part that is read in its tensor; 0: it is in the slot
  std::array<char, kLine - 24> small{};
};

// A rank's side of the rounds, in its region.
struct Outbox {
  alignas(kLine) std::atomic<uint64_t> read{0};  // rounds that the owner has read from all
  Slot slots[kSlots];
  alignas(kLine) char data[kSlots][kSlotBytes + kApart];
};

// Not safe for several threads.
class ShmRounds {
 public:
  ShmRounds(std::string name, int rank, int size) : name_(std::move(name)), rank_(rank), size_(size) {}
  // One of each per rank, before the first put().
  void attach(std::vector<Outbox*> boxes, std::vector<std::shared_ptr<Arena>> arenas);
  void post(const std::shared_ptr<Pending>& pending);

  // One round each; false if it is not possible yet. take() throws Error{internal} when another rank has
  // called another collective.
  bool put();
  bool take();
  // Ends calls whose tensors the others have read; false if there is none.
  bool settle();

  bool idle() const { return line_.empty() && lent_.empty(); }
  bool unsaid() const { return writing_ < line_.size(); }  // others wait for more from this rank
  bool awaits(int peer) const;                             // what is next depends on that rank
  std::vector<std::shared_ptr<Pending>> drop();

 private:
  struct Entry {
    std::shared_ptr<Pending> pending;
    std::unique_ptr<Exchange> exchange;
    uint64_t first, call_code;  // the number of its first round
    bool lends = false;         // the others read this rank's tensor
  };
  struct Lent {
    std::shared_ptr<Pending> pending;
    uint64_t until;  // the others have read so many rounds
  };

  Memory memory_of(const Call& call) const;
  bool has_room();
  uint64_t least_read() const;
  size_t lend(const Exchange& exchange, int round) const;
  bool all_put(const Entry& entry);
  void compare(const Entry& entry, int peer) const;

  const std::string name_;
  const int rank_, size_;
  std::vector<Outbox*> boxes_;
  std::vector<std::shared_ptr<Arena>> arenas_;
  std::vector<Part> parts_;
  std::deque<Entry> line_;                                    // until they are read
  std::deque<Lent> lent_;                                     // read here, not yet by the others
  size_t writing_ = 0;                                        // the first of the line that is not put whole
  uint64_t posted_ = 0, written_ = 0, read_ = 0, freed_ = 0;  // rounds
  int seen_ = 0;                                              // peers whose part of round read_ is available
};

}  // namespace heddle::mesh

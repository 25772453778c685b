// Putting and reading rounds.
#include "lib/transport/shm/shm_rounds.h"

#include <algorithm>

#include "heddle/base/error.h"

namespace heddle::mesh {

namespace {

constexpr size_t kLendFrom = 4096;  // bytes of a round; fewer are copied faster than the others read them

}  // namespace

void ShmRounds::attach(std::vector<Outbox*> boxes, std::vector<std::shared_ptr<Arena>> arenas) {
  boxes_ = std::move(boxes);
  arenas_ = std::move(arenas);
  parts_.resize(size_);
}

Memory ShmRounds::memory_of(const Call& call) const {
  const auto* start = static_cast<const char*>(call.in.const_data_ptr());
  return arenas_[rank_]->offset(start) != 0 ? Memory::shared : Memory::own;
}

void ShmRounds::post(const std::shared_ptr<Pending>& pending) {
  ++pending->left;
  auto exchange = make_exchange(pending->call, rank_, size_, kSlotBytes, memory_of(pending->call));
  if (exchange->rounds() == 0) return pending->finish_part();
  const uint64_t first = posted_;
  posted_ += exchange->rounds();
  line_.push_back({pending, std::move(exchange), first, encode_call(pending->call)});
}

uint64_t ShmRounds::least_read() const {
  uint64_t least = ~uint64_t{0};
  for (const Outbox* box : boxes_) least = std::min(least, box->read.load(std::memory_order_acquire));
  return least;
}

bool ShmRounds::has_room() {
  if (written_ - freed_ < kSlots) return true;
  freed_ = least_read();
  return written_ - freed_ < kSlots;
}

// The offset in this rank's arena where the others may read the round; 0: it must be copied.
size_t ShmRounds::lend(const Exchange& exchange, int round) const {
  if (exchange.payload(round) < kLendFrom) return 0;
  const char* source = exchange.source(round);
  return source == nullptr ? 0 : arenas_[rank_]->offset(source);
}

bool ShmRounds::put() {
  if (!unsaid()) return false;
  Entry& entry = line_[writing_];
  Exchange& exchange = *entry.exchange;
  const int round = static_cast<int>(written_ - entry.first);
  if (exchange.speaks(rank_, round)) {
    if (!has_room() || read_ < entry.first + exchange.after(round)) return false;
    Outbox& box = *boxes_[rank_];
    Slot& slot = box.slots[written_ % kSlots];
    const bool small = exchange.payload(round) <= slot.small.size();
    slot.place = lend(exchange, round);
    entry.lends = entry.lends || slot.place != 0;
    if (slot.place == 0) exchange.put(round, small ? slot.small.data() : box.data[written_ % kSlots]);
    slot.call_code = entry.call_code;
    slot.stamp.store(written_ + 1, std::memory_order_release);
    exchange.keep(round);
  }
  ++written_;
  if (round + 1 == exchange.rounds()) ++writing_;
  return true;
}

void ShmRounds::compare(const Entry& entry, int peer) const {
  const uint64_t other = boxes_[peer]->slots[read_ % kSlots].call_code;
  if (other == entry.call_code) return;
  throw Error(ErrorCode::internal, "mesh",
              "ranks call different collectives on " + name_ + ": rank " + std::to_string(rank_) +
                  " of the group " + describe(entry.call_code) + ", rank " + std::to_string(peer) + " " +
                  describe(other));
}

bool ShmRounds::all_put(const Entry& entry) {
  const int round = static_cast<int>(read_ - entry.first);
  for (; seen_ < size_; ++seen_) {
    if (seen_ == rank_ || !entry.exchange->speaks(seen_, round)) continue;
    const Slot& slot = boxes_[seen_]->slots[read_ % kSlots];
    if (slot.stamp.load(std::memory_order_acquire) != read_ + 1) return false;
    compare(entry, seen_);
  }
  return true;
}

bool ShmRounds::take() {
  if (line_.empty() || read_ >= written_ || !all_put(line_.front())) return false;
  const Entry& entry = line_.front();
  Exchange& exchange = *entry.exchange;
  const int round = static_cast<int>(read_ - entry.first);
  const bool small = exchange.payload(round) <= sizeof(Slot::small);
  for (int rank = 0; rank < size_; ++rank) {
    const Outbox& box = *boxes_[rank];
    const Slot& slot = box.slots[read_ % kSlots];
    parts_[rank] = slot.place != 0
                       ? Part{arenas_[rank]->at(slot.place), Part::Where::in_tensor}
                       : Part{small ? slot.small.data() : box.data[read_ % kSlots], Part::Where::in_slot};
  }
  exchange.take(round, parts_.data());
  boxes_[rank_]->read.store(++read_, std::memory_order_release);
  seen_ = 0;
  if (round + 1 < exchange.rounds()) return true;
  if (entry.lends)
    lent_.push_back({entry.pending, read_});
  else
    entry.pending->finish_part();
  line_.pop_front();
  --writing_;
  return true;
}

bool ShmRounds::settle() {
  if (lent_.empty() || least_read() < lent_.front().until) return false;
  lent_.front().pending->finish_part();
  lent_.pop_front();
  return true;
}

bool ShmRounds::awaits(int peer) const {
  if (idle() || peer == rank_) return false;
  const Outbox& box = *boxes_[peer];
  if (!lent_.empty() && box.read.load(std::memory_order_relaxed) < lent_.front().until) return true;
  if (line_.empty()) return false;
  const bool full = unsaid() && written_ - box.read.load(std::memory_order_relaxed) >= kSlots;
  const Entry& next = line_.front();
  const bool silent = next.exchange->speaks(peer, static_cast<int>(read_ - next.first)) &&
                      box.slots[read_ % kSlots].stamp.load(std::memory_order_relaxed) != read_ + 1;
  return full || silent;
}

std::vector<std::shared_ptr<Pending>> ShmRounds::drop() {
  std::vector<std::shared_ptr<Pending>> all;
  for (Entry& entry : line_) all.push_back(std::move(entry.pending));
  for (Lent& lent : lent_) all.push_back(std::move(lent.pending));
  line_.clear(), lent_.clear();
  writing_ = 0;
  return all;
}

}  // namespace heddle::mesh

// Putting and reading rounds.
#include "heddle/mesh/shm_rounds.h"

#include <algorithm>

#include "heddle/base/error.h"

namespace heddle::mesh {

void ShmRounds::attach(std::vector<Outbox*> boxes) {
  boxes_ = std::move(boxes);
  slots_.resize(size_);
}

void ShmRounds::post(const std::shared_ptr<Pending>& pending) {
  ++pending->left;
  auto exchange = make_exchange(pending->call, rank_, size_, kSlotBytes);
  if (exchange->rounds() == 0) return pending->finish_part();
  const uint64_t first = posted_;
  posted_ += exchange->rounds();
  line_.push_back({pending, std::move(exchange), first, what_of(pending->call)});
}

bool ShmRounds::has_room() {
  if (written_ - freed_ < kSlots) return true;
  uint64_t least = ~uint64_t{0};
  for (const Outbox* box : boxes_) least = std::min(least, box->read.load(std::memory_order_acquire));
  freed_ = least;
  return written_ - freed_ < kSlots;
}

bool ShmRounds::put() {
  if (!unsaid()) return false;
  const Entry& entry = line_[writing_];
  Exchange& exchange = *entry.exchange;
  const int round = static_cast<int>(written_ - entry.first);
  if (exchange.speaks(rank_)) {
    if (!has_room() || read_ < entry.first + exchange.after(round)) return false;
    Outbox& box = *boxes_[rank_];
    Slot& slot = box.slots[written_ % kSlots];
    const bool small = exchange.payload(round) <= slot.small.size();
    exchange.put(round, small ? slot.small.data() : box.data[written_ % kSlots]);
    slot.what = entry.what;
    slot.stamp.store(written_ + 1, std::memory_order_release);
  }
  ++written_;
  if (round + 1 == exchange.rounds()) ++writing_;
  return true;
}

void ShmRounds::compare(const Entry& entry, int peer) const {
  const uint64_t other = boxes_[peer]->slots[read_ % kSlots].what;
  if (other == entry.what) return;
  throw Error(ErrorCode::internal, "mesh",
              "ranks call different collectives on " + name_ + ": rank " + std::to_string(rank_) +
                  " of the group " + describe(entry.what) + ", rank " + std::to_string(peer) + " " +
                  describe(other));
}

bool ShmRounds::all_put(const Entry& entry) {
  for (; seen_ < size_; ++seen_) {
    if (seen_ == rank_ || !entry.exchange->speaks(seen_)) continue;
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
    Outbox& box = *boxes_[rank];
    slots_[rank] = small ? box.slots[read_ % kSlots].small.data() : box.data[read_ % kSlots];
  }
  exchange.take(round, slots_.data());
  boxes_[rank_]->read.store(++read_, std::memory_order_release);
  seen_ = 0;
  if (round + 1 < exchange.rounds()) return true;
  entry.pending->finish_part();
  line_.pop_front();
  --writing_;
  return true;
}

bool ShmRounds::awaits(int peer) const {
  if (line_.empty() || peer == rank_) return false;
  const Outbox& box = *boxes_[peer];
  const bool full = unsaid() && written_ - box.read.load(std::memory_order_relaxed) >= kSlots;
  const bool silent = line_.front().exchange->speaks(peer) &&
                      box.slots[read_ % kSlots].stamp.load(std::memory_order_relaxed) != read_ + 1;
  return full || silent;
}

std::vector<std::shared_ptr<Pending>> ShmRounds::drop() {
  std::vector<std::shared_ptr<Pending>> all;
  for (Entry& entry : line_) all.push_back(std::move(entry.pending));
  line_.clear();
  writing_ = 0;
  return all;
}

}  // namespace heddle::mesh

// Rendezvous in memory, and starting calls as rounds and messages.
#include "lib/transport/shm/shm_group.h"

#include <algorithm>
#include <atomic>
#include <new>

#include "heddle/base/error.h"
#include "lib/transport/shm/shm_sides.h"

namespace heddle::mesh {
namespace {

constexpr size_t kLarge = 1024 * 1024;  // bytes of a call that a helper continues

// FNV-1a: the same number in every process, whatever its libraries.
uint64_t number_of(const std::string& text) {
  uint64_t hash = 14695981039346656037ULL;
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
  return hash == 0 ? 1 : hash;
}

size_t ring_room(size_t ranks) {
  size_t room = 512 * 1024;
  while (room > 64 * 1024 && room * (ranks - 1) > 1024 * 1024) room /= 2;
  return room;
}

// The tags of a caller and those of an all_to_all are disjoint.
uint64_t tag_of(const Call& call) {
  return 2 * static_cast<uint64_t>(call.tag);
}

std::unique_ptr<Work> repeat(Communicator& other, const Call& call) {
  switch (call.operation) {
    case Operation::all_gather:
      return other.all_gather(call.out, call.in);
    case Operation::reduce_scatter:
      return other.reduce_scatter(call.out, call.in, call.reduce);
    case Operation::all_reduce:
      return other.all_reduce(call.out, call.reduce);
    case Operation::all_to_all:
      return other.all_to_all(call.out, call.in, call.out_rows, call.in_rows);
    case Operation::broadcast:
      return other.broadcast(call.out, call.peer);
    case Operation::send:
      return other.send(call.in, call.peer, call.tag);
    default:
      return other.receive(call.out, call.peer, call.tag);
  }
}

}  // namespace

ShmGroup::ShmGroup(ShmGroupPlace place, std::vector<std::shared_ptr<Arena>> arenas)
    : place_(std::move(place)),
      arenas_(std::move(arenas)),
      room_(ring_room(arenas_.size())),
      rounds_(place_.name, place_.rank, static_cast<int>(arenas_.size())),
      channels_(place_.name, static_cast<int>(arenas_.size())) {
  Arena& own = *arenas_[place_.rank];
  region_ = own.take(ring_at(place_.rank, -1), why_);
  if (region_ == nullptr) throw Error(ErrorCode::internal, "mesh", place_.name + ": " + why_);
  if (region_->state == RegionState::ready) {
    why_.clear();
    new (own.memory(*region_)) Outbox;
    for (int to = 0; to < static_cast<int>(arenas_.size()); ++to)
      if (to != place_.rank) new (own.memory(*region_) + ring_at(place_.rank, to)) Ring;
  }
  Arena::publish(*region_, number_of(place_.key));
  ring_all();
}

ShmGroup::~ShmGroup() {
  auto others = arenas_;
  others.erase(others.begin() + place_.rank);
  arenas_[place_.rank]->retire(*region_, std::move(others));
}

// Rings of a region lie behind its outbox, one to each other rank; `to` = -1: the end.
size_t ShmGroup::ring_at(int from, int to) const {
  const int ranks = static_cast<int>(arenas_.size());
  const int place = to < 0 ? ranks - 1 : to < from ? to : to - 1;
  return sizeof(Outbox) + place * (sizeof(Ring) + room_);
}

void ShmGroup::post(const std::shared_ptr<Pending>& pending) {
  if (state_ == State::rendezvous) meet();
  if (state_ == State::broken) {
    pending->fault = fault_;
  } else if (state_ == State::rendezvous) {
    early_.push_back(pending);
  } else {
    start(pending);
  }
}

void ShmGroup::meet() {
  std::vector<const Region*> regions;
  bool refused = false;
  for (const auto& arena : arenas_) {
    const Region* region = arena->find(number_of(place_.key));
    if (region == nullptr) return;
    refused = refused || region->state == RegionState::refused;
    regions.push_back(region);
  }
  refused ? part() : attach(regions);
  const auto early = std::move(early_);
  early_.clear();
  for (const auto& pending : early) start(pending);
}

void ShmGroup::attach(const std::vector<const Region*>& regions) {
  std::vector<Outbox*> boxes;
  std::vector<Ring*> out, in;
  for (int rank = 0; rank < static_cast<int>(arenas_.size()); ++rank) {
    char* theirs = arenas_[rank]->memory(*regions[rank]);
    char* ours = arenas_[place_.rank]->memory(*region_);
    const bool other = rank != place_.rank;
    boxes.push_back(reinterpret_cast<Outbox*>(theirs));
    out.push_back(other ? reinterpret_cast<Ring*>(ours + ring_at(place_.rank, rank)) : nullptr);
    in.push_back(other ? reinterpret_cast<Ring*>(theirs + ring_at(rank, place_.rank)) : nullptr);
  }
  rounds_.attach(std::move(boxes), arenas_);
  channels_.attach(room_, std::move(out), std::move(in));
  state_ = State::shared;
}

void ShmGroup::part() {
  instead_ = place_.instead(why_);
  state_ = State::apart;
}

void ShmGroup::start(const std::shared_ptr<Pending>& pending) try {
  const Call& call = pending->call;
  if (state_ == State::broken) {  // by one of those that were posted before all had met
    pending->fault = fault_;
    return;
  }
  if (state_ == State::apart) {
    pending->instead = repeat(*instead_, call);
    return;
  }
  large_ = large_ || (call.in.defined() ? call.in : call.out).nbytes() >= kLarge;
  pending->left = 1;  // so that no part is the last one before all have started
  if (call.operation == Operation::send) {
    channels_.send(pending, static_cast<const char*>(call.in.const_data_ptr()), call.in.nbytes(), call.peer,
                   tag_of(call));
  } else if (call.operation == Operation::receive) {
    channels_.receive(pending, static_cast<char*>(call.out.mutable_data_ptr()), call.out.nbytes(), call.peer,
                      tag_of(call));
  } else {
    rounds_.post(pending);
    if (call.operation == Operation::all_to_all) start_rows(pending);
  }
  pending->finish_part();
} catch (...) {
  pending->fault = std::current_exception();
  fail(pending->fault);
}

void ShmGroup::start_rows(const std::shared_ptr<Pending>& pending) {
  const Call& call = pending->call;
  const auto row = [](const at::Tensor& tensor) {
    return static_cast<size_t>(c10::multiply_integers(tensor.sizes().slice(1))) * tensor.element_size();
  };
  const size_t in_row = row(call.in), out_row = row(call.out);
  const char* in = static_cast<const char*>(call.in.const_data_ptr());
  char* out = static_cast<char*>(call.out.mutable_data_ptr());
  const char* own_in = nullptr;
  char* own_out = nullptr;
  for (size_t peer = 0; peer < arenas_.size(); ++peer) {
    const size_t sent = call.in_rows[peer] * in_row, got = call.out_rows[peer] * out_row;
    if (static_cast<int>(peer) != place_.rank) {
      channels_.receive(pending, out, got, static_cast<int>(peer), 1);
      channels_.send(pending, in, sent, static_cast<int>(peer), 1);
    } else {
      own_in = in, own_out = out;
    }
    in += sent, out += got;
  }
  // The others begin to read while this rank copies its own rows.
  rounds_.put();
  channels_.advance();
  ring_all();
  copy_out(own_out, own_in, call.in_rows[place_.rank] * in_row, call.out.nbytes());
}

bool ShmGroup::step() {
  if (state_ == State::rendezvous) meet();
  if (state_ != State::shared) return state_ == State::apart;
  const bool put = rounds_.put();
  if (put) ring_all();
  const bool took = rounds_.take();
  const bool settled = rounds_.settle();
  const bool moved = !channels_.idle() && channels_.advance();
  if (took || moved) ring_all();
  return put || took || settled || moved;
}

bool ShmGroup::advance() try {
  const bool moved = step();
  if (idle()) large_ = false;
  return moved;
} catch (...) {
  fail(std::current_exception());
  return true;
}

bool ShmGroup::idle() const {
  return state_ == State::broken || (early_.empty() && rounds_.idle() && channels_.idle());
}

bool ShmGroup::unsaid() const {
  return !early_.empty() || rounds_.unsaid() || channels_.unsaid();
}

void ShmGroup::fail(std::exception_ptr fault) {
  state_ = State::broken;
  fault_ = fault;
  for (const auto& list : {rounds_.drop(), channels_.drop(), std::move(early_)}) {
    for (const auto& pending : list) pending->fault = fault;
  }
  early_.clear();
}

void ShmGroup::ring_all() const {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // orders the put before the check for sleepers
  for (size_t rank = 0; rank < arenas_.size(); ++rank)
    if (static_cast<int>(rank) != place_.rank) ring(arenas_[rank]->head().bell);
}

void ShmGroup::call_for_help() const {
  for (size_t rank = 0; rank < arenas_.size(); ++rank) {
    ArenaHead& head = arenas_[rank]->head();
    const bool asleep = head.unfinished.load(std::memory_order_relaxed) != 0 &&
                        head.driven.load(std::memory_order_relaxed) == 0;
    const int peer = static_cast<int>(rank);
    if (peer == place_.rank || !asleep) continue;
    if (rounds_.awaits(peer) || channels_.awaits(peer)) ring(head.helper);
  }
}

}  // namespace heddle::mesh

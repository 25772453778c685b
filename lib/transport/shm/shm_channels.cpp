// Rings of bytes: a header, then the message, each beginning at a cache line.
#include "lib/transport/shm/shm_channels.h"

#include <algorithm>
#include <cstring>

#include "heddle/base/error.h"

namespace heddle::mesh {
namespace {

constexpr size_t kStep = kLine;

size_t whole_steps(size_t bytes) {
  return (bytes + kStep - 1) / kStep * kStep;
}

}  // namespace

ShmChannels::ShmChannels(std::string name, int size) : name_(std::move(name)), peers_(size) {}

void ShmChannels::attach(size_t room, std::vector<Ring*> out, std::vector<Ring*> in) {
  room_ = room;
  for (size_t rank = 0; rank < peers_.size(); ++rank)
    peers_[rank].out = out[rank], peers_[rank].in = in[rank];
}

void ShmChannels::send(const std::shared_ptr<Pending>& pending, const char* data, size_t bytes, int peer,
                       uint64_t tag) {
  if (bytes == 0) return;
  ++pending->left;
  peers_[peer].outs.push_back({pending, data, {tag, bytes}});
}

void ShmChannels::receive(const std::shared_ptr<Pending>& pending, char* data, size_t bytes, int peer,
                          uint64_t tag) {
  if (bytes == 0) return;
  ++pending->left;
  Peer& from = peers_[peer];
  const In in{pending, data, {tag, bytes}};
  const auto known =
      std::find_if(from.kept.begin(), from.kept.end(), [&](auto& one) { return one.header.tag == tag; });
  if (known != from.kept.end()) {
    bind(*known, in);
    pending->finish_part();
    from.kept.erase(known);
  } else if (from.coming && !from.message.pending && from.message.header.tag == tag) {
    bind(from.message, in);
  } else {
    from.ins.push_back(in);
  }
}

void ShmChannels::bind(Message& message, const In& in) const {
  if (message.header.bytes != in.header.bytes) {
    throw Error(ErrorCode::internal, "mesh",
                "on " + name_ + " a message of " + std::to_string(message.header.bytes) +
                    " bytes meets a receive of " + std::to_string(in.header.bytes));
  }
  if (message.got > 0) std::memcpy(in.data, message.kept.data(), message.got);
  message.kept = {};
  message.to = in.data;
  message.pending = in.pending;
}

void ShmChannels::copy_in(Ring& ring, uint64_t position, const char* data, size_t bytes) const {
  const size_t start = position & (room_ - 1), first = std::min(bytes, room_ - start);
  std::memcpy(ring.bytes() + start, data, first);
  std::memcpy(ring.bytes(), data + first, bytes - first);
}

void ShmChannels::copy_out(Ring& ring, uint64_t position, char* data, size_t bytes) const {
  const size_t start = position & (room_ - 1), first = std::min(bytes, room_ - start);
  std::memcpy(data, ring.bytes() + start, first);
  std::memcpy(data + first, ring.bytes(), bytes - first);
}

bool ShmChannels::push(Peer& peer) {
  if (peer.outs.empty()) return false;
  Ring& ring = *peer.out;
  Out& next = peer.outs.front();
  uint64_t head = ring.head.load(std::memory_order_relaxed);
  size_t room = room_ - (head - ring.tail.load(std::memory_order_acquire));
  if (room == 0) return false;
  if (!next.announced) {
    copy_in(ring, head, reinterpret_cast<const char*>(&next.header), sizeof(Header));
    head += kStep, room -= kStep;
    next.announced = true;
  }
  // A quarter at a time, so that the other side can begin early.
  const size_t count = std::min({room, next.header.bytes - next.sent, room_ / 4});
  copy_in(ring, head, next.data + next.sent, count);
  next.sent += count;
  ring.head.store(head + whole_steps(count), std::memory_order_release);
  if (next.sent < next.header.bytes) return true;
  next.pending->finish_part();
  peer.outs.pop_front();
  return true;
}

void ShmChannels::begin(Peer& peer, uint64_t tail) {
  peer.coming = true;
  peer.message = {};
  Header& header = peer.message.header;
  copy_out(*peer.in, tail, reinterpret_cast<char*>(&header), sizeof header);
  const auto wanted = std::find_if(peer.ins.begin(), peer.ins.end(),
                                   [&](const In& in) { return in.header.tag == header.tag; });
  if (wanted == peer.ins.end()) return;
  bind(peer.message, *wanted);
  peer.ins.erase(wanted);
}

bool ShmChannels::pull(Peer& peer) {
  Ring& ring = *peer.in;
  const uint64_t head = ring.head.load(std::memory_order_acquire);
  uint64_t tail = ring.tail.load(std::memory_order_relaxed);
  if (head == tail) return false;
  if (!peer.coming) {
    begin(peer, tail);
    tail += kStep;
    ring.tail.store(tail, std::memory_order_release);
  }
  Message& message = peer.message;
  if (message.to == nullptr) {
    const bool in_the_way = !peer.ins.empty() || head - tail == room_;
    if (!in_the_way) return false;
    message.kept.resize(message.header.bytes);
    message.to = message.kept.data();
  }
  const size_t count = std::min({head - tail, message.header.bytes - message.got, room_ / 4});
  copy_out(ring, tail, message.to + message.got, count);
  message.got += count;
  ring.tail.store(tail + whole_steps(count), std::memory_order_release);
  if (message.got < message.header.bytes) return true;
  if (message.pending) {
    message.pending->finish_part();
  } else {
    peer.kept.push_back(std::move(message));
  }
  peer.message = {};
  peer.coming = false;
  return true;
}

bool ShmChannels::advance() {
  bool moved = false;
  for (Peer& peer : peers_) {
    if (peer.out == nullptr) continue;
    moved = push(peer) || moved;
    moved = pull(peer) || moved;
  }
  return moved;
}

bool ShmChannels::idle() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return peer.outs.empty() && peer.ins.empty() && !peer.message.pending;
  });
}

bool ShmChannels::unsaid() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return !peer.outs.empty(); });
}

bool ShmChannels::awaits(int rank) const {
  const Peer& peer = peers_[rank];
  return !peer.outs.empty() || !peer.ins.empty() || peer.message.pending;
}

std::vector<std::shared_ptr<Pending>> ShmChannels::drop() {
  std::vector<std::shared_ptr<Pending>> all;
  for (Peer& peer : peers_) {
    for (Out& out : peer.outs) all.push_back(std::move(out.pending));
    for (In& in : peer.ins) all.push_back(std::move(in.pending));
    if (peer.message.pending) all.push_back(std::move(peer.message.pending));
    peer.outs.clear(), peer.ins.clear();
    peer.message = {};
    peer.coming = false;
  }
  return all;
}

}  // namespace heddle::mesh

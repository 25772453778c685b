// Messages with tags between this rank and each other one of its group, through rings of bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "lib/transport/shm/shm_rounds.h"

namespace heddle::mesh {

// One direction between two ranks; in the sender's region, followed by its bytes.
struct Ring {
  alignas(kLine) std::atomic<uint64_t> head{0};  // bytes that were put in, by the sender
  alignas(kLine) std::atomic<uint64_t> tail{0};  // bytes that were taken out, by the receiver

  char* bytes() { return reinterpret_cast<char*>(this + 1); }
};

// Messages of one tag arrive in the order of their sending. A message whose receive is not posted yet stays
// in the ring until others must pass it; then it is copied to this rank's own memory. Not safe for several
// threads.
class ShmChannels {
 public:
  ShmChannels(std::string name, int size);
  // room: bytes of each ring, a power of two. out, in: one ring per rank, null for this one.
  void attach(size_t room, std::vector<Ring*> out, std::vector<Ring*> in);

  void send(const std::shared_ptr<Pending>& pending, const char* data, size_t bytes, int peer, uint64_t tag);
  void receive(const std::shared_ptr<Pending>& pending, char* data, size_t bytes, int peer, uint64_t tag);

  // Moves what can be moved, a piece for each peer; false if nothing was. Throws Error{internal} when a
  // message has another size than its receive.
  bool advance();

  bool idle() const;
  bool unsaid() const;
  bool awaits(int peer) const;
  std::vector<std::shared_ptr<Pending>> drop();

 private:
  struct Header {
    uint64_t tag, bytes;
  };
  struct Out {
    std::shared_ptr<Pending> pending;
    const char* data;
    Header header;
    size_t sent = 0;
    bool announced = false;
  };
  struct In {
    std::shared_ptr<Pending> pending;
    char* data;
    Header header;
  };
  // A partly received message; without a posted receive its bytes are kept.
  struct Message {
    Header header{};
    size_t got = 0;
    char* to = nullptr;
    std::shared_ptr<Pending> pending;
    std::vector<char> kept;
  };
  struct Peer {
    Ring *out = nullptr, *in = nullptr;
    std::deque<Out> outs;
    std::deque<In> ins;  // receives without a message
    bool coming = false;
    Message message;           // that is coming
    std::deque<Message> kept;  // whole ones without a receive
  };

  bool push(Peer& peer);
  bool pull(Peer& peer);
  void begin(Peer& peer, uint64_t tail);
  void bind(Message& message, const In& in) const;
  void copy_in(Ring& ring, uint64_t position, const char* data, size_t bytes) const;
  void copy_out(Ring& ring, uint64_t position, char* data, size_t bytes) const;

  const std::string name_;
  size_t room_ = 0;
  std::vector<Peer> peers_;
};

}  // namespace heddle::mesh

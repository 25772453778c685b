// UDP socket with which ranks of different hosts ask each other whether they run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "heddle/base/export.h"

namespace heddle::mesh {

// Numeric address of the interface through which this host reaches `host`. Empty if `host` does not resolve
// or no interface reaches it.
HEDDLE_API std::string address_towards(const std::string& host, int port);

// A question is answered only if it carries the random number of the socket, and an answer is read only if it
// carries that of the socket that asked. Datagrams of other programs are discarded.
class HEDDLE_API ProbeSocket {
 public:
  // address: numeric. Opens no socket if the address is empty or cannot be bound.
  explicit ProbeSocket(const std::string& address);
  ~ProbeSocket();
  ProbeSocket(const ProbeSocket&) = delete;
  ProbeSocket& operator=(const ProbeSocket&) = delete;

  // "PORT/NUMBER/ADDRESS", without spaces, for ask() of another rank. Empty if no socket is open.
  const std::string& contact() const { return contact_; }

  // Asks the socket with this contact. rank: the rank that asks. Does not wait.
  void ask(const std::string& contact, int rank) const;

  // Reads what has arrived, without waiting. answer(rank): returns the answer to a question of this rank.
  // heard(text): called with each answer to a question of this socket.
  void receive(const std::function<std::string(int rank)>& answer,
               const std::function<void(const std::string& text)>& heard) const;

 private:
  int fd_ = -1;
  uint64_t number_ = 0;
  std::string contact_;
};

}  // namespace heddle::mesh

// The store that rank 0 serves: values by key, and which ranks have come, join or refuse the run.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "lib/transport/meeting/messages.h"
#include "lib/transport/meeting/socket.h"

namespace heddle::mesh {

// Runs body on a thread of its own that takes no signals: a process has one thread for them.
HEDDLE_API void run_detached(std::function<void()> body);

// One thread serves all connections. Connections that do not greet are closed after some seconds, or at their
// first word.
class HEDDLE_API StoreServer {
 public:
  // greeting: of rank 0. on_gone: called from the server's thread when the connection of a rank ends after
  // all ranks have joined; may be empty.
  StoreServer(Socket listening, Greeting greeting, std::function<void(int rank)> on_gone);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  int port() const;
  const std::string& id() const;  // random: tells this server from others

  // The first refusal counts. Every rank that joins, or waits to, gets it.
  void refuse(const Refusal& refusal);
  // Returns when each other rank knows the refusal, or after `most`.
  void wait_until_told(std::chrono::milliseconds most);

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace heddle::mesh

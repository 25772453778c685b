// The store that rank 0 serves: values by key, and which ranks have come, join or refuse the run.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "lib/transport/meeting/socket.h"

namespace heddle::mesh {

// The first word of every connection.
inline constexpr const char* kGreeting = "heddle store 1";

// How a connection introduces itself.
struct HEDDLE_API Greeting {
  enum class Role {
    rank,  // the one connection that stands for its rank: its end is the end of the rank
    link,  // another connection of a rank
    guest  // of no rank: leaves a refusal, or asks which server this is
  } role = Role::rank;
  std::string session = {};  // of the run: an attempt of a launcher that restarts ranks
  int rank = -1, world_size = 0;
  std::string host = {};   // the name of the machine
  std::string table = {};  // see Process: tells machines apart
  int process = 0;

  std::string packed() const;
  static Greeting unpacked(const std::string& text);
};

// Why the ranks of a run do not meet.
struct HEDDLE_API Refusal {
  enum class Kind { error, stopped, lost } kind = Kind::error;
  int rank = -1;          // which says so; -1: not known
  std::string host = {};  // of that rank
  std::string text = {};  // packed Errors; the number of the signal; or how the rank was lost

  std::string packed() const;
  static Refusal unpacked(const std::string& text);
};

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

// Greetings and refusals: messages of ranks at the store of rank 0.
#pragma once

#include <string>

#include "heddle/base/export.h"

namespace heddle::mesh {

// The first word of every connection.
inline constexpr const char* kGreeting = "heddle store 1";
// The second word of a rank: it has read the answer to its greeting. A rank that gave up before is no rank
// yet.
inline constexpr const char* kHere = "here";

// How a connection introduces itself.
struct HEDDLE_API Greeting {
  enum class Role {
    rank,  // the one connection that stands for its rank: its end is the end of the rank
    link,  // a further connection of a rank
    guest  // belongs to no rank: leaves a refusal, or asks which server this is
  } role = Role::rank;
  std::string session = {};  // the attempt of a launcher that restarts ranks
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

// Tells machines apart: the process table, or the name of the host where the table is not known.
const std::string& host_key(const Greeting& greeting);
bool is_same_process(const Greeting& a, const Greeting& b);

}  // namespace heddle::mesh

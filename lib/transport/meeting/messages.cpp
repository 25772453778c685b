// Greetings and refusals as texts.
#include "lib/transport/meeting/messages.h"

#include <vector>

#include "core/mesh/packed.h"

namespace heddle::mesh {
namespace {

using Words = std::vector<std::string>;

}  // namespace

std::string Greeting::packed() const {
  return pack(Words{std::to_string(static_cast<int>(role)), session, std::to_string(rank),
                    std::to_string(world_size), host, table, std::to_string(process)});
}

Greeting Greeting::unpacked(const std::string& text) {
  const Words words = unpack(text);
  return {static_cast<Role>(std::stoi(words.at(0))),
          words.at(1),
          std::stoi(words.at(2)),
          std::stoi(words.at(3)),
          words.at(4),
          words.at(5),
          std::stoi(words.at(6))};
}

std::string Refusal::packed() const {
  return pack(Words{std::to_string(static_cast<int>(kind)), std::to_string(rank), host, text});
}

Refusal Refusal::unpacked(const std::string& text) {
  const Words words = unpack(text);
  return {static_cast<Kind>(std::stoi(words.at(0))), std::stoi(words.at(1)), words.at(2), words.at(3)};
}

const std::string& host_key(const Greeting& greeting) {
  return greeting.table.empty() ? greeting.host : greeting.table;
}

bool is_same_process(const Greeting& a, const Greeting& b) {
  return a.process == b.process && host_key(a) == host_key(b);
}

}  // namespace heddle::mesh

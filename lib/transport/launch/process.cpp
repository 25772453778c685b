// Reading /proc.
#include "lib/transport/launch/process.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>

namespace heddle::mesh {
namespace {

std::string link_at(const char* path) {
  char target[64] = {};
  const auto length = ::readlink(path, target, sizeof target - 1);
  return length > 0 ? std::string(target, static_cast<size_t>(length)) : "";
}

std::string own_table() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  const std::string name_space = link_at("/proc/self/ns/pid");
  const bool shows_own = link_at("/proc/self") == std::to_string(::getpid());
  return boot.empty() || name_space.empty() || !shows_own ? "" : boot + "/" + name_space;
}

struct Stat {
  char state = '?';
  uint64_t started = 0;
};

// The fields behind the name, which may hold spaces and parentheses: see proc(5).
std::optional<Stat> stat_of(int id) {
  constexpr int kBetween = 18;  // fields between the state and the start
  std::ifstream file("/proc/" + std::to_string(id) + "/stat");
  std::string line;
  if (!std::getline(file, line) || line.rfind(')') == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  Stat stat;
  std::string skipped;
  fields >> stat.state;
  for (int i = 0; i < kBetween; ++i) fields >> skipped;
  fields >> stat.started;
  return fields ? std::optional(stat) : std::nullopt;
}

}  // namespace

Process this_process() {
  const int id = ::getpid();
  return {id, stat_of(id).value_or(Stat{}).started, own_table()};
}

ProcessState state_of(const Process& process, const std::string& own_table) {
  if (own_table.empty() || process.table != own_table) return ProcessState::unseen;
  const auto stat = stat_of(process.id);
  if (!stat)  // gone, or hidden from this user
    return ::kill(process.id, 0) != 0 && errno == ESRCH ? ProcessState::ended : ProcessState::alive;
  if (stat->started != process.started || stat->state == 'Z' || stat->state == 'X')
    return ProcessState::ended;
  if (stat->state == 'T') return ProcessState::stopped;
  return stat->state == 't' ? ProcessState::traced : ProcessState::alive;
}

}  // namespace heddle::mesh

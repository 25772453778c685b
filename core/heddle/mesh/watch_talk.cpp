// The thread of a watch that talks to the store.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fstream>

#include "heddle/mesh/watch_state.h"

namespace heddle::mesh {
namespace {

std::vector<uint8_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string text(const std::vector<uint8_t>& given) {
  return {given.begin(), given.end()};
}

std::string beat_key(int rank) {
  return "beat/" + std::to_string(rank);
}

// Also true for a process that has ended and that nobody has collected yet.
bool process_ended(int pid) {
  if (::kill(pid, 0) != 0) return errno == ESRCH;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return ::kill(pid, 0) != 0 && errno == ESRCH;
  const size_t end = line.rfind(')');
  return end != std::string::npos && end + 2 < line.size() && (line[end + 2] == 'Z' || line[end + 2] == 'X');
}

}  // namespace

void Watch::State::talk() {
  try {
    for (;;) {
      exchange_news();
      std::unique_lock lock(mutex);
      last_contact = Clock::now();
      const bool hurry = !suspects.empty() || to_publish.has_value() || loss.has_value();
      changed.wait_for(lock, hurry ? kQuickBeat : kBeat,
                       [&] { return stop || (!hurry && (!suspects.empty() || to_publish)); });
      if (stop) break;
    }
  } catch (const std::exception&) {
    const std::lock_guard lock(mutex);
    if (options.rank_zero_serves && options.rank != 0) {
      learn({0, false, "was lost: the store that it serves is gone"});
    } else {
      learn({-1, false, "was lost: it does not answer"});
    }
  }
  const std::lock_guard lock(mutex);
  talking = false;
  changed.notify_all();
}

void Watch::State::exchange_news() {
  const char state = waiting ? 'w' : 'c';
  store->set(beat_key(options.rank),
             bytes(std::to_string(++beats) + " " + state + " " + std::to_string(::getpid())));
  std::optional<Loss> found;
  std::vector<int> ranks;
  {
    const std::lock_guard lock(mutex);
    found = to_publish;
    ranks = suspects;
  }
  if (found) publish(*found);
  look_for_loss();
  if (is_lost) return;
  // The ring: everyone looks after the next rank that has not left.
  for (int step = 1; step < options.world_size; ++step) {
    const int next = (options.rank + step) % options.world_size;
    look_at(next);
    const std::lock_guard lock(mutex);
    if (pulses[next].state != 'l') break;
  }
  for (const int rank : ranks) look_at(rank);
}

void Watch::State::look_for_loss() {
  bool mine = false;
  if (store->check({"lost"})) {
    const std::string record = text(store->get("lost"));
    const size_t space = record.find(' ');
    const std::lock_guard lock(mutex);
    learn({std::stoi(record.substr(0, space)), record[space + 1] == 'l', record.substr(space + 3)});
    mine = !told_seen;
    told_seen = true;
  }
  if (!mine && !is_lost) return;
  const int64_t count = store->add("seen", mine ? 1 : 0);
  const std::lock_guard lock(mutex);
  seen = count;
  changed.notify_all();
}

void Watch::State::look_at(int rank) {
  if (rank == options.rank || !store->check({beat_key(rank)})) return;
  int64_t count = 0;
  char state = '?';
  int pid = 0;
  const std::string beat = text(store->get(beat_key(rank)));
  std::sscanf(beat.c_str(), "%ld %c %d", &count, &state, &pid);
  const auto now = Clock::now();
  bool dead = false, left = false;
  std::chrono::milliseconds silence{};
  {
    const std::lock_guard lock(mutex);
    Pulse& pulse = pulses[rank];
    if (pulse.count != count || pulse.state != state) pulse.changed = now;
    pulse.count = count, pulse.state = state, pulse.pid = pid;
    dead = state != 'l' && is_dead(pulse, now);
    left = state == 'l' && std::find(suspects.begin(), suspects.end(), rank) != suspects.end();
    silence = std::chrono::duration_cast<std::chrono::milliseconds>(now - pulse.changed);
  }
  if (left) publish({rank, false, "has ended its work"});
  if (!dead) return;
  const bool ended = options.one_machine && process_ended(pid);
  // It may have left in good order since its beat was read.
  if (ended && text(store->get(beat_key(rank))).find(" l ") != std::string::npos) return;
  publish({rank, false,
           ended ? "died (its process is gone)"
                 : "was lost: no sign of life for " + std::to_string(silence.count() / 1000) + " s"});
}

bool Watch::State::is_dead(const Pulse& pulse, Clock::time_point now) const {
  if (options.one_machine && pulse.pid > 0 && process_ended(pulse.pid)) return true;
  return now - pulse.changed >= (suspects.empty() ? kSilence : kSuspectSilence);
}

// The first who publishes is right; the others learn it from the store.
void Watch::State::publish(const Loss& found) {
  store->compareSet("lost", {},
                    bytes(std::to_string(found.rank) + (found.lives ? " l " : " d ") + found.how));
  {
    const std::lock_guard lock(mutex);
    to_publish.reset();
  }
  look_for_loss();
}

}  // namespace heddle::mesh

// The watchdog's thread that uses the store.
#include <algorithm>
#include <cstdint>
#include <sstream>

#include "lib/transport/liveness/watch_state.h"

namespace heddle::mesh {
namespace {

std::vector<uint8_t> as_bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string text(const std::vector<uint8_t>& given) {
  return {given.begin(), given.end()};
}

std::string beat_key(int rank) {
  return "beat/" + std::to_string(rank);
}

}  // namespace

std::string Beat::text() const {
  std::ostringstream out;
  out << count << ' ' << state << ' ' << process.id << ' ' << process.started << ' ' << process.table;
  return out.str();
}

Beat Beat::read(const std::string& text) {
  Beat beat;
  std::istringstream(text) >> beat.count >> beat.state >> beat.process.id >> beat.process.started >>
      beat.process.table;
  return beat;
}

void Watch::State::talk() {
  try {
    for (;;) {
      exchange_news();
      std::unique_lock lock(mutex);
      last_contact = ran;
      const bool hurry = !suspects.empty() || to_publish.has_value() || loss.has_value();
      // Until the process that serves the store is known, which can then be seen when the store is silent.
      const bool knows_server = !store_is_rank_zero() || pulses.contains(0);
      changed.wait_for(lock,
                       !knows_server ? kGlance
                       : hurry       ? kQuickBeat
                                     : kBeat,
                       [&] { return stop || (!hurry && (!suspects.empty() || to_publish)); });
      if (stop) break;
    }
  } catch (const std::exception&) {
    const std::lock_guard lock(mutex);
    const auto server = pulses.find(0);
    const bool ended = store_is_rank_zero() && server != pulses.end() &&
                       state_of(server->second.beat.process, options.process.table) == ProcessState::ended;
    if (store_is_rank_zero()) {
      learn({0, false, ended ? kDied : "was lost: the connection to the store that it serves broke"});
    } else {
      learn({-1, false, "was lost: the connection to it broke"});
    }
  }
  const std::lock_guard lock(mutex);
  talking = false;
  changed.notify_all();
}

void Watch::State::exchange_news() {
  const char state = waiting ? 'w' : 'c';
  store->set(beat_key(options.rank), as_bytes(Beat{++beats, state, options.process}.text()));
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
  if (store_is_rank_zero() && !pulses.contains(0)) look_at(0);  // before its store may stop answering
  // The ring: each rank watches the next rank that has not left.
  for (int step = 1; step < options.world_size; ++step) {
    const int next = (options.rank + step) % options.world_size;
    look_at(next);
    const std::lock_guard lock(mutex);
    if (pulses[next].beat.state != 'l') break;
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
  const Beat beat = Beat::read(text(store->get(beat_key(rank))));
  const ProcessState process = state_of(beat.process, options.process.table);
  bool silent = false, left = false;
  std::chrono::milliseconds silence{};
  {
    const std::lock_guard lock(mutex);
    Pulse& pulse = pulses[rank];
    if (pulse.beat.count != beat.count || pulse.beat.state != beat.state) pulse.changed = ran;
    pulse.beat = beat, pulse.process = process;
    left = beat.state == 'l' && std::find(suspects.begin(), suspects.end(), rank) != suspects.end();
    silent = is_lost_by_silence(pulse);
    silence = ran.load() - pulse.changed;
  }
  if (left) return publish({rank, false, "has ended its work"});
  if (beat.state == 'l') return;
  if (silent)
    publish(
        {rank, false,
         "was lost: no heartbeat for " + in_seconds(silence) + ", and its process cannot be seen from here"});
  if (process != ProcessState::ended) return;
  // It may have left regularly since its heartbeat was read.
  if (Beat::read(text(store->get(beat_key(rank)))).state != 'l') publish({rank, false, kDied});
}

bool Watch::State::is_lost_by_silence(const Pulse& pulse) const {
  const auto limit = broken ? kSilence : std::max(options.timeout, kSilence);
  return pulse.process == ProcessState::unseen && pulse.beat.state != 'l' &&
         ran.load() - pulse.changed >= limit;
}

// The first finding counts; the others read it from the store.
void Watch::State::publish(const Loss& found) {
  store->compareSet("lost", {},
                    as_bytes(std::to_string(found.rank) + (found.lives ? " l " : " d ") + found.how));
  {
    const std::lock_guard lock(mutex);
    to_publish.reset();
  }
  look_for_loss();
}

}  // namespace heddle::mesh

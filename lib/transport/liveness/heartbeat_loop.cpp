// The watchdog's thread that uses the store.
#include <algorithm>

#include "lib/transport/liveness/watch_state.h"

namespace heddle::mesh {
namespace {

constexpr const char* kLost = "lost";  // "": nothing; kAlarm; or the first finding
constexpr const char* kAlarm = "?";    // a connection broke: silent ranks are lost sooner

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

void Watch::State::heartbeat_loop() {
  try {
    store->compareSet(kLost, as_bytes(""),
                      as_bytes(""));  // from now on it exists, and is read together with heartbeats
    heartbeat_until_stopped();
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

void Watch::State::heartbeat_until_stopped() {
  bool hurry = false, knows_server = false;
  for (int64_t round = 0;; ++round) {
    const bool due = hurry || !knows_server || round % pace == 0;
    due ? exchange_news() : look_at_processes();
    std::unique_lock lock(mutex);
    if (due) last_contact = ran;
    const auto urgent = [&] { return !suspects.empty() || to_publish || (broken && !told_broken); };
    hurry = urgent() || loss;
    // Until the process that serves the store is known, which can then be seen when the store is silent.
    knows_server = !store_is_rank_zero() || pulses.contains(0);
    changed.wait_for(lock,
                     !knows_server ? kPollInterval
                     : hurry       ? kQuickBeat * pace
                                   : kBeat,
                     [&] { return stop || (!hurry && urgent()); });
    if (stop) return;
    hurry = hurry || urgent();
  }
}

void Watch::State::exchange_news() {
  Beat own{++beats, waiting ? 'w' : 'c', options.process, {}};
  std::optional<Loss> found;
  std::vector<int> ranks;
  bool alarm = false;
  {
    const std::lock_guard lock(mutex);
    own.late = summary();
    found = to_publish;
    alarm = broken && !told_broken;
    told_broken = broken;
    ranks = watched();
  }
  store->set(beat_key(options.rank), as_bytes(own.text()));
  if (found) publish(*found);
  if (alarm) store->compareSet(kLost, as_bytes(""), as_bytes(kAlarm));
  bool more = read_news(std::move(ranks));
  while (more && pass_over_left()) more = read_news({next});
}

// The ring: each rank watches the next rank that has not left.
bool Watch::State::pass_over_left() {
  const std::lock_guard lock(mutex);
  const auto known = pulses.find(next);
  if (known == pulses.end() || known->second.beat.state != 'l') return false;
  next = (next + 1) % options.world_size;
  return next != options.rank;
}

bool Watch::State::read_news(std::vector<int> ranks) {
  const auto is_known = [&](int rank) {
    const std::lock_guard lock(mutex);
    return pulses.contains(rank);
  };
  std::erase_if(ranks, [&](int rank) { return !is_known(rank) && !store->check({beat_key(rank)}); });
  std::vector<std::string> keys = {kLost};
  for (const int rank : ranks) keys.push_back(beat_key(rank));
  const auto values = store->multiGet(keys);
  learn_record(text(values[0]));
  for (size_t i = 0; i < ranks.size() && !is_lost; ++i) hear(ranks[i], Beat::read(text(values[i + 1])));
  return !is_lost;
}

void Watch::State::learn_record(const std::string& record) {
  bool mine = false;
  if (record == kAlarm) {
    const std::lock_guard lock(mutex);
    broken = told_broken = true;
  } else if (!record.empty()) {
    const size_t space = record.find(' ');
    const std::lock_guard lock(mutex);
    learn({std::stoi(record.substr(0, space)), record[space + 1] == 'l', record.substr(space + 3)});
    mine = !told_seen;
    told_seen = true;
  }
  if (!mine && !(is_lost && options.rank == 0)) return;
  const int64_t count = store->add("seen", mine ? 1 : 0);
  const std::lock_guard lock(mutex);
  seen = count;
  changed.notify_all();
}

void Watch::State::hear(int rank, const Beat& beat) {
  const ProcessState process = state_of(beat.process, options.process.table);
  bool silent = false, left = false;
  std::chrono::milliseconds quiet{};
  {
    const std::lock_guard lock(mutex);
    Pulse& pulse = pulses[rank];
    if (pulse.beat.count != beat.count || pulse.beat.state != beat.state) pulse.changed = ran;
    pulse.beat = beat, pulse.process = process;
    left = beat.state == 'l' && std::find(suspects.begin(), suspects.end(), rank) != suspects.end();
    silent = is_lost_by_silence(pulse);
    quiet = ran.load() - pulse.changed;
  }
  if (left) return publish({rank, false, "has ended its work"});
  if (beat.state == 'l') return;
  if (silent)
    publish(
        {rank, false,
         "was lost: no heartbeat for " + in_seconds(quiet) + ", and its process cannot be seen from here"});
  if (process == ProcessState::ended) confirm_end(rank);
}

// It may have left regularly since its heartbeat was read.
void Watch::State::confirm_end(int rank) {
  if (Beat::read(text(store->get(beat_key(rank)))).state != 'l') publish({rank, false, kDied});
}

void Watch::State::look_at_processes() {
  std::vector<int> ended;
  {
    const std::lock_guard lock(mutex);
    for (const int rank : watched()) {
      const auto known = pulses.find(rank);
      if (known == pulses.end() || known->second.beat.state == 'l') continue;
      if (state_of(known->second.beat.process, options.process.table) == ProcessState::ended)
        ended.push_back(rank);
    }
  }
  for (const int rank : ended) confirm_end(rank);
}

// The first finding counts; the others read it from the store.
void Watch::State::publish(const Loss& found) {
  const auto record = as_bytes(std::to_string(found.rank) + (found.lives ? " l " : " d ") + found.how);
  std::string now;
  for (const char* open : {"", kAlarm}) {
    now = text(store->compareSet(kLost, as_bytes(open), record));
    if (now != "" && now != kAlarm) break;
  }
  {
    const std::lock_guard lock(mutex);
    to_publish.reset();
  }
  learn_record(now);
}

void Watch::State::write_first_beat() try {
  store->set(beat_key(options.rank), as_bytes(Beat{0, 'c', options.process, {}}.text()));
} catch (const std::exception&) {
  return;  // the talking thread finds out too
}

void Watch::State::know_server() try {
  const Beat beat = Beat::read(text(store->get(beat_key(0))));
  const std::lock_guard lock(mutex);
  if (!pulses.contains(0)) pulses[0] = {beat, state_of(beat.process, options.process.table), ran};
} catch (const std::exception&) {
  return;  // the talking thread finds out too
}

}  // namespace heddle::mesh

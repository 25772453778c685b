// The watchdog's thread that uses the store.
#include <algorithm>
#include <thread>

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

}  // namespace

void Watch::State::heartbeat_loop() {
  try {
    store->compareSet(kLost, as_bytes(""),
                      as_bytes(""));  // from now on it exists, and is read together with heartbeats
    heartbeat_until_stopped();
  } catch (const std::exception&) {
    const std::lock_guard lock(mutex);
    const auto server = pulses.find(0);
    const bool ended = server != pulses.end() &&
                       state_of(server->second.beat.process, options.process.table) == ProcessState::ended;
    learn(
        {0, Loss::Kind::dead, ended ? kDied : "was lost: the connection to the store that it serves broke"});
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
    if (due) note_contact();
    const auto urgent = [&] {
      return !suspects.empty() || to_publish || (broken && !told_broken) || !closed.empty();
    };
    hurry = urgent() || told_seen || loss;
    // Until the process that serves the store is known, which can then be seen when the store is silent.
    knows_server = options.rank == 0 || pulses.contains(0);
    changed.wait_for(lock,
                     !knows_server ? kPollInterval
                     : hurry       ? kQuickBeat * pace
                                   : kBeat,
                     [&] { return stop || (!hurry && urgent()); });
    if (stop) return;
    hurry = hurry || urgent();
  }
}

// Time in which the store did not answer is no silence of other ranks.
void Watch::State::note_contact() {
  const auto gap = ran.load() - last_contact;
  for (auto& [rank, pulse] : pulses)
    if (gap > silence + pace * kBeat) pulse.changed = std::min(pulse.changed + gap, ran.load());
  last_contact = ran;
}

void Watch::State::exchange_news() {
  Beat own{++beats, waiting ? 'w' : 'c', options.process, {}, probe.contact()};
  std::optional<Loss> found;
  std::vector<int> ranks, closed_ranks;
  bool alarm = false;
  find_hosts_in_doubt();
  {
    const std::lock_guard lock(mutex);
    own.late = summary();
    found = to_publish;
    alarm = broken && !told_broken;
    told_broken = broken;
    ranks = watched();
    closed_ranks.swap(closed);
    // Heartbeats that are not read any more would count as silence.
    std::erase_if(pulses, [&](const auto& known) {
      return known.first != 0 && known.second.beat.state != 'l' &&
             !std::binary_search(ranks.begin(), ranks.end(), known.first);
    });
  }
  store->set(beat_key(options.rank), as_bytes(own.text()));
  if (found) publish(*found);
  if (alarm) store->compareSet(kLost, as_bytes(""), as_bytes(kAlarm));
  for (const int rank : closed_ranks) confirm_closed(rank);
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
  if (record.empty()) return;
  if (record == kAlarm) {
    const std::lock_guard lock(mutex);
    broken = told_broken = true;
    return;
  }
  const Loss found = Loss::read(record);
  const bool mine = found.kind == Loss::Kind::stopped && found.rank == options.rank;
  bool first = false;
  {
    const std::lock_guard lock(mutex);
    if (found.kind != Loss::Kind::stopped) learn(found);
    first = !told_seen;
    told_seen = true;
  }
  if (first || options.rank == 0) {
    const int64_t count = store->add("seen", first ? 1 : 0);
    const std::lock_guard lock(mutex);
    seen = count;
    changed.notify_all();
  }
  if (found.kind != Loss::Kind::stopped || mine) return;
  if (first && options.on_stopped) {
    // The others read the record from the store that ends with rank 0.
    for (const auto end = Clock::now() + kStopGrace;
         options.rank == 0 && Clock::now() < end && store->add("seen", 0) < options.world_size;)
      std::this_thread::sleep_for(kPollInterval);
    options.on_stopped(found.rank, std::stoi(found.how));
  }
  const std::lock_guard lock(mutex);
  learn(found);
}

void Watch::State::hear(int rank, const Beat& beat) {
  const ProcessState process = state_of(beat.process, options.process.table);
  bool left = false;
  std::optional<Loss> lost;
  {
    const std::lock_guard lock(mutex);
    Pulse& pulse = pulses[rank];
    if (pulse.beat.count != beat.count || pulse.beat.state != beat.state) pulse.changed = ran;
    pulse.beat = beat, pulse.process = process;
    left = beat.state == 'l' && std::find(suspects.begin(), suspects.end(), rank) != suspects.end();
    lost = loss_by_silence(rank);
  }
  if (left) return publish({rank, Loss::Kind::dead, "has ended its work"});
  if (beat.state == 'l') return;
  if (lost) publish(*lost);
  if (process == ProcessState::ended) confirm_end(rank);
}

// Confirms the end of a rank, which may have left regularly since its heartbeat was read.
void Watch::State::confirm_end(int rank) {
  if (Beat::read(text(store->get(beat_key(rank)))).state != 'l') publish({rank, Loss::Kind::dead, kDied});
}

// The ranks of this host see the end of a process that is in the table.
void Watch::State::confirm_closed(int rank) {
  Beat beat;
  if (store->check({beat_key(rank)})) beat = Beat::read(text(store->get(beat_key(rank))));
  const ProcessState process = state_of(beat.process, options.process.table);
  if (beat.state != 'l' && (process == ProcessState::unseen || process == ProcessState::ended))
    publish({rank, Loss::Kind::dead, kDied});
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
  const auto record = as_bytes(found.record());
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

}  // namespace heddle::mesh

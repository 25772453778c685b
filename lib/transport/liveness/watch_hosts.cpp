// Lost hosts: the ranks of each host, hosts of which no rank is heard, and questions to rank 0's host.
#include <algorithm>
#include <sstream>

#include "lib/transport/liveness/watch_state.h"

namespace heddle::mesh {
namespace {

std::string host_key(const std::string& table) {
  return "host/" + table;
}

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string text_of(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

std::vector<Beat> read_beats(c10d::Store& store, const std::vector<int>& ranks) {
  std::vector<std::string> keys;
  for (const int rank : ranks) keys.push_back(beat_key(rank));
  std::vector<Beat> beats;
  if (keys.empty()) return beats;
  for (const auto& value : store.multiGet(keys)) beats.push_back(Beat::read(text_of(value)));
  return beats;
}

}  // namespace

void Watch::State::write_first_beat() try {
  if (options.rank != 0 && options.address.empty()) return;
  store->set(beat_key(options.rank), bytes_of(Beat{0, 'c', options.process, {}, probe.contact()}.text()));
  if (!options.address.empty() && !options.process.table.empty())
    store->append(host_key(options.process.table), bytes_of(std::to_string(options.rank) + " "));
} catch (const std::exception&) {
  return;  // heartbeat_loop() finds the same failure
}

void Watch::State::know_server() try {
  if (options.address.empty() && options.rank == 0) return;
  const Beat server = Beat::read(text_of(store->get(beat_key(0))));
  if (options.rank != 0) {
    const std::lock_guard lock(mutex);
    if (!pulses.contains(0)) pulses[0] = {server, state_of(server.process, options.process.table), ran};
  }
  if (!options.address.empty()) know_hosts(server);
} catch (const std::exception&) {
  return;  // heartbeat_loop() finds the same failure
}

void Watch::State::know_hosts(const Beat& server) {
  const std::string& table = options.process.table;
  std::vector<int> here = ranks_on(table), there;
  const auto above = std::upper_bound(here.begin(), here.end(), options.rank);
  std::rotate(here.begin(), above, here.end());
  std::erase(here, options.rank);
  const std::vector<Beat> beats = read_beats(*store, here);
  if (server.process.table != table) there = ranks_on(server.process.table);
  const std::vector<int> asked_ranks(there.begin(), there.begin() + std::min(there.size(), kMostContacts));
  const std::vector<Beat> their_beats = read_beats(*store, asked_ranks);
  const std::lock_guard lock(mutex);
  for (size_t i = 0; i < here.size(); ++i) mates.emplace_back(here[i], beats[i].process);
  for (const Beat& beat : their_beats)
    if (!beat.contact.empty()) contacts.push_back(beat.contact);
  server_members = std::move(there);
  met = true;
}

std::vector<int> Watch::State::ranks_on(const std::string& table) {
  std::vector<int> ranks;
  if (table.empty() || !store->check({host_key(table)})) return ranks;
  std::istringstream list(text_of(store->get(host_key(table))));
  for (int rank = 0; list >> rank;) ranks.push_back(rank);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::set<std::string> Watch::State::hosts_in_doubt() const {
  std::set<std::string> tables;
  for (const int rank : always_watched()) {
    const auto known = pulses.find(rank);
    if (!met || known == pulses.end() || known->second.beat.state == 'l') continue;
    if (known->second.process == ProcessState::unseen && silence_of(known->second) >= silence / 2)
      tables.insert(known->second.beat.process.table);
  }
  return tables;
}

void Watch::State::find_hosts_in_doubt() {
  std::set<std::string> tables;
  {
    const std::lock_guard lock(mutex);
    tables = hosts_in_doubt();
    std::erase_if(tables, [&](const std::string& table) { return hosts.contains(table); });
  }
  for (const std::string& table : tables) {
    auto ranks = ranks_on(table);
    const std::lock_guard lock(mutex);
    hosts[table] = std::move(ranks);
  }
}

std::optional<char> Watch::State::state_told_by_mates(int rank) const {
  if (rank == 0 && server_heard > last_contact)
    return server_how == 'c' ? std::nullopt : std::optional(server_how);
  const auto known = pulses.find(rank);
  if (known == pulses.end() || known->second.beat.process.table.empty()) return std::nullopt;
  for (const auto& [mate, pulse] : pulses) {
    if (mate == rank || pulse.beat.process.table != known->second.beat.process.table) continue;
    if (pulse.beat.state == 'l' || silence_of(pulse) >= silence) continue;
    for (const LateRank& late_rank : pulse.beat.late)
      if (late_rank.rank == rank && (late_rank.how == 'T' || late_rank.how == 't')) return late_rank.how;
  }
  return std::nullopt;
}

std::optional<Loss> Watch::State::loss_by_silence(int rank) const {
  const Pulse& pulse = pulses.at(rank);
  const auto quiet = silence_of(pulse);
  if (pulse.process != ProcessState::unseen || pulse.beat.state == 'l' || state_told_by_mates(rank))
    return std::nullopt;
  if (quiet >= (broken ? silence : std::max(options.timeout, silence)))
    return Loss{
        rank, Loss::Kind::dead,
        "was lost: no heartbeat for " + in_seconds(quiet) + ", and its process cannot be seen from here"};
  const auto members = hosts.find(pulse.beat.process.table);
  if (quiet < host_limit || members == hosts.end() || members->second.empty()) return std::nullopt;
  auto heard_before = quiet;
  std::vector<int> ranks;
  for (const int member : members->second) {
    const auto known = pulses.find(member);
    if (known == pulses.end()) continue;
    if (known->second.beat.state == 'l') continue;
    ranks.push_back(member);
    heard_before = std::min(heard_before, silence_of(known->second));
  }
  if (heard_before < host_limit) return std::nullopt;
  return lost_host(ranks, heard_before);
}

Loss Watch::State::lost_host(const std::vector<int>& ranks, std::chrono::milliseconds quiet) const {
  const std::string how =
      ranks.size() > 1 ? "were lost: their host was not heard for " : "was lost: its host was not heard for ";
  return {ranks.front(), Loss::Kind::host, how + in_seconds(quiet), ranks};
}

// Answers other hosts, and asks rank 0's host if the store is silent.
void Watch::State::exchange_probes() {
  const auto heard_answer = [&](const std::string& text) {
    server_heard = ran;
    server_how = 'c';
    for (const LateRank& late_rank : Beat::read(text).late)
      if (late_rank.rank == 0 && late_rank.how != 's') server_how = late_rank.how;
  };
  probe.receive([&](int asker) { return answer_probe(asker); }, heard_answer);
  const auto now = ran.load();
  if (now - last_contact < silence / 2 || now - asked < kProbeInterval * pace) return;
  asked = now;
  for (const std::string& contact : contacts) probe.ask(contact, options.rank);
}

// A rank that asks is heard, although its heartbeat does not reach the store.
std::string Watch::State::answer_probe(int asker) {
  if (const auto known = pulses.find(asker); known != pulses.end()) known->second.changed = ran;
  Beat answer{0, waiting ? 'w' : 'c', options.process, summary()};
  std::erase_if(answer.late, [](const LateRank& late_rank) { return late_rank.rank == 0; });
  for (const auto& [rank, process] : mates) {
    if (rank != 0) continue;
    const ProcessState state = state_of(process, options.process.table);
    if (state == ProcessState::stopped) answer.late.push_back({0, 'T'});
    if (state == ProcessState::traced) answer.late.push_back({0, 't'});
  }
  return answer.text();
}

}  // namespace heddle::mesh

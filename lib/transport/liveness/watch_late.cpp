// Finds late ranks: from the heartbeats that this rank reads, and from the tree for the rest.
#include <algorithm>
#include <set>

#include "lib/transport/liveness/watch_state.h"

namespace heddle::mesh {
namespace {

// "": it computes.
std::string told(char how) {
  switch (how) {
    case 'T':
      return "stopped by a signal, state T";
    case 't':
      return "traced by a debugger, state t";
    case 's':
      return "no heartbeat";
    default:
      return "";
  }
}

}  // namespace

// Until the store last answered: a store that is silent says nothing of the others.
std::chrono::milliseconds Watch::State::silence_of(const Pulse& pulse) const {
  return last_contact - pulse.changed;
}

std::string Watch::State::rank_state_text(int rank) const {
  const auto known = pulses.find(rank);
  if (known == pulses.end()) return "no heartbeat at all";
  // Read now: the last heartbeat may be older than the stop.
  const ProcessState process = state_of(known->second.beat.process, options.process.table);
  if (process == ProcessState::stopped) return told('T');
  if (process == ProcessState::traced) return told('t');
  if (const auto how = state_told_by_mates(rank)) return told(*how);
  const auto quiet = silence_of(known->second);
  return quiet < silence ? "" : told('s') + " for " + in_seconds(quiet);
}

Absent Watch::State::absent(int rank) const {
  return {rank, rank_state_text(rank), host(rank)};
}

std::vector<Absent> Watch::State::late() const {
  if (options.rank != 0 && ran.load() - last_contact > silence) {
    // Without knowledge of the others.
    const std::string why = rank_state_text(0);
    return {{0, why.empty() ? "its store does not answer" : why, host(0)}};
  }
  std::map<int, std::string> ranks;
  for (const auto& [rank, pulse] : pulses) {
    const std::string why = rank_state_text(rank);
    if (pulse.beat.state == 'c' || (pulse.beat.state != 'l' && !why.empty())) ranks[rank] = why;
    for (const LateRank& one : pulse.beat.late)
      if (one.rank != options.rank && !pulses.contains(one.rank)) ranks[one.rank] = told(one.how);
  }
  std::vector<Absent> late;
  for (const auto& [rank, why] : ranks) late.push_back({rank, why, host(rank)});
  return late;
}

// Stopped and silent ranks are kept before ranks that compute.
std::vector<LateRank> Watch::State::summary() const {
  std::map<int, char> late;
  const auto look = [&](int rank, bool with_its_part) {
    const auto known = pulses.find(rank);
    if (known == pulses.end() || known->second.beat.state == 'l') return;
    const Pulse& pulse = known->second;
    const bool silent = silence_of(pulse) >= silence;
    if (pulse.process == ProcessState::stopped || pulse.process == ProcessState::traced)
      late[rank] = pulse.process == ProcessState::stopped ? 'T' : 't';
    else if (silent || pulse.beat.state == 'c')
      late[rank] = silent ? 's' : 'c';
    for (const LateRank& one : pulse.beat.late)
      if (with_its_part && !silent) late.emplace(one.rank, one.how);
  };
  look(next, false);
  for (const int rank : heard) look(rank, true);
  // One rank tells the states of all stopped ranks that follow it on its host.
  for (const auto& [rank, process] : mates) {
    const ProcessState state = state_of(process, options.process.table);
    if (state != ProcessState::stopped && state != ProcessState::traced) break;
    late[rank] = state == ProcessState::stopped ? 'T' : 't';
  }
  late.erase(options.rank);
  std::vector<LateRank> all;
  for (const auto& [rank, how] : late) all.push_back({rank, how});
  std::stable_partition(all.begin(), all.end(), [](const LateRank& one) { return one.how != 'c'; });
  all.resize(std::min(all.size(), kMostLate));
  return all;
}

std::vector<int> Watch::State::watched() const {
  const auto always = always_watched();
  std::set<int> ranks(always.begin(), always.end());
  for (const std::string& table : hosts_in_doubt())
    if (const auto members = hosts.find(table); members != hosts.end())
      ranks.insert(members->second.begin(), members->second.end());
  ranks.erase(options.rank);
  return {ranks.begin(), ranks.end()};
}

std::vector<int> Watch::State::always_watched() const {
  std::set<int> ranks(suspects.begin(), suspects.end());
  ranks.insert(next);
  if (options.rank != 0 && !pulses.contains(0)) ranks.insert(0);  // before its store may stop answering
  for (const int rank : heard) {
    const auto known = pulses.find(rank);
    if (known == pulses.end() || known->second.beat.state != 'l') ranks.insert(rank);
  }
  ranks.erase(options.rank);
  return {ranks.begin(), ranks.end()};
}

}  // namespace heddle::mesh

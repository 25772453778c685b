// The watchdog's thread that only reads the clock.
#include <algorithm>

#include "lib/transport/liveness/running_time.h"
#include "lib/transport/liveness/watch_state.h"

namespace heddle::mesh {

void Watch::State::check_loop() {
  RunningTime running;
  std::unique_lock lock(mutex);
  while (!stop) {
    changed.wait_for(lock, kPollInterval);
    ran = std::chrono::duration_cast<std::chrono::milliseconds>(running.tick());
    exchange_probes();
    if (!loss && talking) check_store();
    const bool releases_all = loss.has_value();
    lock.unlock();
    release_due(releases_all);
    lock.lock();
    if (stop || !loss || claimed || !options.on_lost || Clock::now() - loss_time < kNotice) continue;
    claimed = true;
    const Error found = error("");
    lock.unlock();
    options.on_lost(found);
    lock.lock();
  }
  judging = false;
  changed.notify_all();
}

// A store that does not answer may be served by a stopped process.
void Watch::State::check_store() {
  const auto quiet = ran.load() - last_contact;
  if (quiet <= std::max(kStoreSilence, silence) || options.rank == 0) return;
  const auto known = pulses.find(0);
  if (known != pulses.end())
    known->second.process = state_of(known->second.beat.process, options.process.table);
  if (known != pulses.end() && known->second.process == ProcessState::ended)
    return learn({0, Loss::Kind::dead, kDied});
  const auto host_quiet = ran.load() - std::max(last_contact, server_heard);
  if (!contacts.empty() && host_quiet >= host_limit) return learn(lost_host(server_members, host_quiet));
  if (quiet < options.timeout) return;
  const std::string why = rank_state_text(0);
  learn({0, Loss::Kind::dead,
         "was lost: its store has not answered for " + in_seconds(quiet) +
             (why.empty() ? "" : " (" + why + ")")});
}

void Watch::State::release_due(bool releases_all) {
  const std::lock_guard lock(releases_mutex);
  for (const auto& [owner, release] : releases)
    if (releases_all || ran.load() >= release.until) release.call();
}

}  // namespace heddle::mesh

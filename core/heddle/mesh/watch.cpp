// The watch as the rank's own thread sees it, and the thread that judges.
#include "heddle/mesh/watch.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <thread>

#include "heddle/mesh/faults.h"
#include "heddle/mesh/watch_state.h"

namespace heddle::mesh {

void Watch::State::learn(Loss found) {
  if (loss) return;
  loss = std::move(found);
  loss_time = Clock::now();
  is_lost = true;
  changed.notify_all();
}

Error Watch::State::error(const std::string& waited) const {
  if (loss->rank < 0) {
    return Error(
        ErrorCode::rank_lost, "mesh",
        "the launcher's store " + loss->how + (waited.empty() ? "" : "; this rank waited in " + waited),
        "see what became of the launcher");
  }
  return rank_lost(loss->rank, loss->how, waited);
}

std::vector<int> Watch::State::late() const {
  std::vector<int> ranks;
  for (const auto& [rank, pulse] : pulses) {
    if (pulse.state == 'c') ranks.push_back(rank);
  }
  return ranks;
}

// The others read the finding from the store that dies with rank 0; the lost rank itself never does.
void Watch::State::linger(std::unique_lock<std::mutex>& lock) {
  if (options.rank != 0 || !options.rank_zero_serves) return;
  changed.wait_for(lock, kLinger,
                   [&] { return !talking || seen >= options.world_size - (loss && !loss->lives ? 1 : 0); });
}

void Watch::State::judge() {
  std::unique_lock lock(mutex);
  while (!stop) {
    changed.wait_for(lock, kGlance);
    const auto now = Clock::now();
    if (!loss && talking && options.rank != 0 && now - last_contact > kStoreSilence) {
      learn({options.rank_zero_serves ? 0 : -1, false, "was lost: its store does not answer"});
    }
    if (!loss) continue;
    lock.unlock();
    release_all();
    lock.lock();
    if (stop || claimed || !options.on_lost || now - loss_time < kNotice) continue;
    claimed = true;
    const Error found = error("");
    lock.unlock();
    options.on_lost(found);
    lock.lock();
  }
  judging = false;
  changed.notify_all();
}

void Watch::State::release_all() {
  const std::lock_guard lock(releases_mutex);
  for (const auto& [owner, release] : releases) release();
}

Watch::Watch(c10::intrusive_ptr<c10d::Store> store, WatchOptions options) {
  state_ = std::make_shared<State>(std::move(store), std::move(options));
  std::thread([state = state_] { state->talk(); }).detach();
  std::thread([state = state_] { state->judge(); }).detach();
}

Watch::~Watch() {
  std::unique_lock lock(state_->mutex);
  state_->stop = true;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, std::chrono::seconds(1),
                           [&] { return !state_->judging && !state_->talking; });
}

bool Watch::lost() const {
  return state_->is_lost;
}

void Watch::set_waiting(bool waiting) {
  state_->waiting = waiting;
}

void Watch::interrupt(const void* owner, std::function<void()> release) {
  const std::lock_guard lock(state_->releases_mutex);
  state_->releases[owner] = std::move(release);
}

void Watch::forget(const void* owner) {
  const std::lock_guard lock(state_->releases_mutex);
  state_->releases.erase(owner);
}

Error Watch::verdict(const std::string& waited, std::span<const int> members,
                     std::chrono::milliseconds elapsed, bool timed_out, const std::string& broken,
                     Thread thread) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  if (!state.loss) {
    state.suspects.assign(members.begin(), members.end());
    if (timed_out) {  // who is late may stand behind a rank of another group
      state.suspects.resize(state.options.world_size);
      std::iota(state.suspects.begin(), state.suspects.end(), 0);
    }
    state.changed.notify_all();
    const auto patience = timed_out ? kSuspectSilence + kBeat : kInquiry;
    state.changed.wait_for(lock, patience, [&] { return state.loss.has_value(); });
  }
  state.claimed = state.claimed || thread == Thread::own;
  if (state.loss) {
    const Error error = state.error(waited);
    state.linger(lock);
    return error;
  }
  if (!timed_out) {
    return Error(ErrorCode::rank_lost, "mesh", waited + " broke, and every rank still lives: " + broken,
                 "see the network between the machines");
  }
  const std::vector<int> late = state.late();
  if (!late.empty()) {
    state.to_publish = Loss{late.front(), true, "lives, but others waited in vain for it in " + waited};
    state.changed.notify_all();
    state.changed.wait_for(lock, kLinger, [&] { return state.loss.has_value(); });
    state.linger(lock);
  }
  return mesh::timed_out(waited, elapsed, late);
}

void Watch::abandon(const std::string& why) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  state.claimed = true;
  if (state.loss) return state.linger(lock);
  state.to_publish = Loss{state.options.rank, true, "failed: " + why};
  state.changed.notify_all();
  state.changed.wait_for(lock, kLinger, [&] { return state.loss.has_value() || !state.talking; });
  state.linger(lock);
}

void Watch::leave(std::chrono::milliseconds most) {
  State& state = *state_;
  const auto end = Clock::now() + most;
  {
    std::unique_lock lock(state.mutex);
    state.claimed = true;
    if (state.loss) return;
    if (state.options.rank != 0) {  // rank 0 goes on to watch while it waits
      state.stop = true;
      state.changed.notify_all();
      if (!state.changed.wait_for(lock, kStoreSilence, [&] { return !state.talking; })) return;
    }
  }
  try {
    if (state.options.rank != 0)
      state.store->set("beat/" + std::to_string(state.options.rank), std::string("0 l 0"));
    int64_t gone = state.store->add("left", 1);
    for (auto pause = std::chrono::milliseconds(1);
         state.options.rank == 0 && gone < state.options.world_size;) {
      if (lost() || Clock::now() > end) return;
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, kGlance);
      gone = state.store->add("left", 0);
    }
  } catch (const std::exception&) {
    return;  // the store is gone, and this rank is done anyway
  }
}

}  // namespace heddle::mesh

// The watchdog's functions for the rank's own thread.
#include "lib/transport/liveness/watch.h"

#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <sstream>
#include <thread>

#include "lib/transport/liveness/watch_state.h"

namespace heddle::mesh {
namespace {

std::string name_signal(int signal) {
  switch (signal) {
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGHUP:
      return "SIGHUP";
    case SIGQUIT:
      return "SIGQUIT";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGUSR2:
      return "SIGUSR2";
    default:
      return "signal " + std::to_string(signal);
  }
}

}  // namespace

Watch::State::State(c10::intrusive_ptr<c10d::Store> link, WatchOptions watch_options)
    : store(std::move(link)),
      options(std::move(watch_options)),
      pace(std::max(1, options.world_size / kRanksABeat)),
      heard(heard_by(options.rank, options.world_size)),
      silence(kSilence + 2 * (pace - 1) * kBeat),
      host_limit(std::max(options.heartbeat, silence)),
      probe(options.address),
      next((options.rank + 1) % options.world_size) {}

void Watch::State::learn(Loss found) {
  if (loss) return;
  loss = std::move(found);
  loss_time = Clock::now();
  is_lost = true;
  changed.notify_all();
}

Error Watch::State::error(const std::string& waited) const {
  if (loss->kind == Loss::Kind::stopped)
    return rank_lost(loss->rank,
                     "was stopped by " + name_signal(std::stoi(loss->how)) + " before the first step", waited,
                     host(loss->rank));
  if (loss->kind != Loss::Kind::host) return rank_lost(loss->rank, loss->how, waited, host(loss->rank));
  const std::string name = host(loss->rank);
  return Error(ErrorCode::rank_lost, "mesh",
               name_ranks(loss->members, [&](int rank) { return host(rank); }) + " " + loss->how +
                   (waited.empty() ? "" : "; this rank waited in " + waited),
               "see whether the host" + (name.empty() ? "" : " " + name) +
                   " runs and its network is up; then start the run again");
}

std::string Loss::record() const {
  std::string text = std::to_string(rank) + " " + static_cast<char>(kind) + " ";
  for (const int member : members) text += std::to_string(member) + ",";
  return text + (kind == Kind::host ? " " : "") + how;
}

Loss Loss::read(const std::string& record) {
  Loss loss;
  char kind = 'd', comma = ',';
  std::string list;
  std::istringstream words(record);
  words >> loss.rank >> kind;
  loss.kind = static_cast<Kind>(kind);
  if (loss.kind == Kind::host) words >> list;
  std::istringstream members(list);
  for (int member = 0; members >> member >> comma;) loss.members.push_back(member);
  std::getline(words >> std::ws, loss.how, '\0');
  return loss;
}

int Loss::unreached() const {
  return kind == Kind::dead ? 1 : static_cast<int>(members.size());
}

// The others read the finding from the store that ends with rank 0; the lost rank never does.
void Watch::State::serve_until_read(std::unique_lock<std::mutex>& lock) {
  if (options.rank != 0) return;
  changed.wait_for(lock, kShutdownGrace,
                   [&] { return !talking || seen >= options.world_size - (loss ? loss->unreached() : 0); });
}

// Lets the talking thread check the suspected ranks.
void Watch::State::query_ranks(std::unique_lock<std::mutex>& lock, const Broken& given) {
  if (loss) return;
  const bool timed_out = given.how == Broken::How::timed_out;
  suspects.clear();
  if (given.members.size() <= kAskedByName) suspects = given.members;
  if (timed_out) {          // a late rank may be waiting for a rank of another group
    suspects.push_back(0);  // it hears of all ranks
    if (options.world_size <= static_cast<int>(kAskedByName)) {
      suspects.resize(options.world_size);
      std::iota(suspects.begin(), suspects.end(), 0);
    }
  }
  broken = broken || !timed_out;
  changed.notify_all();
  const auto patience = timed_out ? silence + pace * kBeat : kInquiry + silence - kSilence;
  changed.wait_for(lock, patience, [&] { return loss.has_value(); });
}

void Watch::State::report_lost(std::unique_lock<std::mutex>& lock, const Absent& late, const Broken& given) {
  to_publish = Loss{late.rank, Loss::Kind::lives,
                    "is alive but did not come to " + given.waited + " in " + in_seconds(given.elapsed) +
                        (late.why.empty() ? "" : " (" + late.why + ")")};
  changed.notify_all();
  changed.wait_for(lock, kShutdownGrace, [&] { return loss.has_value(); });
  serve_until_read(lock);
}

Watch::Watch(c10::intrusive_ptr<c10d::Store> store, WatchOptions options) {
  state_ = std::make_shared<State>(std::move(store), std::move(options));
  state_->write_first_beat();
  std::thread([state = state_] { state->heartbeat_loop(); }).detach();
  std::thread([state = state_] { state->check_loop(); }).detach();
}

void Watch::know_server() {
  state_->know_server();
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

std::chrono::milliseconds Watch::running_time() const {
  return state_->ran;
}

void Watch::set_waiting(bool waiting) {
  state_->waiting = waiting;
}

void Watch::interrupt(const void* owner, std::function<void()> release, std::chrono::milliseconds until) {
  const std::lock_guard lock(state_->releases_mutex);
  state_->releases[owner] = {std::move(release), until};
}

void Watch::forget(const void* owner) {
  const std::lock_guard lock(state_->releases_mutex);
  state_->releases.erase(owner);
}

Error Watch::verdict(const Broken& broken, Thread thread, std::span<const int> absent) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  state.query_ranks(lock, broken);
  state.claimed = state.claimed || thread == Thread::own;
  if (state.loss) {
    const Error error = state.error(broken.waited);
    state.serve_until_read(lock);
    return error;
  }
  if (broken.how != Broken::How::timed_out) {
    return Error(ErrorCode::rank_lost, "mesh",
                 broken.waited + " broke, and every rank is alive: " + broken.said,
                 "check the network between the machines");
  }
  std::vector<Absent> late;
  for (const int rank : absent) late.push_back(state.absent(rank));
  if (late.empty()) late = state.late();
  // A stopped or silent rank is blamed before one that computes, which may wait for it later.
  const auto first =
      std::find_if(late.begin(), late.end(), [](const Absent& one) { return !one.why.empty(); });
  if (!late.empty()) state.report_lost(lock, first == late.end() ? late.front() : *first, broken);
  return timed_out(broken.waited, broken.elapsed, late);
}

void Watch::abandon(const std::string& why) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  state.claimed = true;
  if (state.loss) return state.serve_until_read(lock);
  state.to_publish = Loss{state.options.rank, Loss::Kind::lives, "failed: " + why};
  state.changed.notify_all();
  state.changed.wait_for(lock, kShutdownGrace, [&] { return state.loss.has_value() || !state.talking; });
  state.serve_until_read(lock);
}

void Watch::State::publish_stop(int signal) {
  const auto end = Clock::now() + kStopGrace;
  std::unique_lock lock(mutex);
  claimed = true;
  if (!loss) to_publish = Loss{options.rank, Loss::Kind::stopped, std::to_string(signal)};
  changed.notify_all();
  changed.wait_until(lock, end, [&] {
    return !talking || (told_seen && (options.rank != 0 || seen >= options.world_size));
  });
}

void Watch::State::note_closed(int rank) {
  const std::lock_guard lock(mutex);
  closed.push_back(rank);
  changed.notify_all();
}

std::function<void(int)> Watch::stop_function() const {
  return [state = state_](int signal) { state->publish_stop(signal); };
}

std::function<void(int)> Watch::gone_function() const {
  return [state = state_](int rank) { state->note_closed(rank); };
}

void Watch::leave() {
  State& state = *state_;
  const auto begin = running_time();
  {
    std::unique_lock lock(state.mutex);
    state.claimed = true;
    if (state.loss) return;
    if (state.options.rank != 0) {  // rank 0 keeps watching while it waits
      state.stop = true;
      state.changed.notify_all();
      if (!state.changed.wait_for(lock, state.options.timeout, [&] { return !state.talking; })) return;
    }
  }
  try {
    if (state.options.rank != 0) state.store->set(beat_key(state.options.rank), Beat{0, 'l', {}, {}}.text());
    int64_t gone = state.store->add("left", 1);
    for (auto pause = std::chrono::milliseconds(1);
         state.options.rank == 0 && gone < state.options.world_size;) {
      if (lost() || running_time() - begin > state.options.timeout) return;
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, kPollInterval);
      gone = state.store->add("left", 0);
    }
  } catch (const std::exception&) {
    return;  // the store is gone, and this rank is done anyway
  }
}

}  // namespace heddle::mesh

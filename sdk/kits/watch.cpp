// The caller waits for the end of the kits or of their time.
#include "watch.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

namespace heddle::kits {
namespace {

thread_local Watch* current_watch = nullptr;
thread_local RankState* current_rank = nullptr;
// Fraction of the time limit: after a kit that failed later than this, no further kit is run.
constexpr double kLongKit = 1.0 / 3;
// Multiple of the time limit: after a failure the check ends once it has taken this long.
constexpr double kLongCheck = 1.5;
// Multiple of the time limit: a kit that begins late gets only the rest of this time, but at least kLongKit.
constexpr double kWholeCheck = 1.9;

}  // namespace

Watch* Watch::current() {
  return current_watch;
}

std::chrono::milliseconds Watch::patience() const {
  return std::chrono::milliseconds(static_cast<int64_t>(options.time_limit * 500));
}

void Watch::begins(const std::string& rule) {
  const std::lock_guard lock(mutex_);
  if (given_up_) throw GivenUp();
  if (options.begins) options.begins(rule);
  rule_ = rule;
  began_ = Clock::now();
  changed_.notify_all();
}

void Watch::ended(const Check& check) {
  const std::lock_guard lock(mutex_);
  if (given_up_) throw GivenUp();
  const double took = std::chrono::duration<double>(Clock::now() - began_).count();
  failed_ = failed_ || !check.passed;
  slow_ = slow_ || (!check.passed && took > kLongKit * options.time_limit);
  rule_.clear();
  report_.checks.push_back(check);
  if (options.ended) options.ended(check);
  changed_.notify_all();
}

std::string Watch::exhausted() const {
  const std::lock_guard lock(mutex_);
  const double all = std::chrono::duration<double>(Clock::now() - first_).count();
  if (slow_) return "an earlier kit failed after a long wait";
  if (failed_ && all > kLongCheck * options.time_limit)
    return "an earlier kit failed, and the check has taken too long";
  return "";
}

double Watch::limit() const {
  const double before = std::chrono::duration<double>(began_ - first_).count();
  return std::clamp(kWholeCheck * options.time_limit - before, kLongKit * options.time_limit,
                    options.time_limit);
}

std::string Watch::where() const {
  std::string busy, waiting;
  for (const auto& [rank, state] : ranks_) {
    const std::string text = state->call.text();
    const bool waits = state->waits > 0;
    std::string& out = waits ? waiting : busy;
    out += (out.empty() ? "" : "; ") + (rank < 0 ? "the check" : "rank " + std::to_string(rank)) +
           (waits ? " waits for other ranks in " : " is in ") +
           (text.empty() ? "a backward, or in another function that the plugin passed to the engine" : text);
  }
  return busy + (busy.empty() || waiting.empty() ? "" : "; ") + waiting;
}

Watch::Waiting::Waiting() {
  if (current_rank == nullptr) return;
  ++current_rank->waits;
  ++current_rank->waited;
}

int64_t Watch::waited_of_thread() {
  return current_rank == nullptr ? 0 : current_rank->waited.load();
}

Watch::Waiting::~Waiting() {
  if (current_rank != nullptr) --current_rank->waits;
}

void Watch::give_up() {
  given_up_ = true;
  Check check{rule_, false, "", true};
  const int64_t seconds = static_cast<int64_t>(limit());
  // Omits the thread of the kits, which only waits for its ranks.
  if (ranks_.size() > 1) ranks_.erase(-1);
  check.detail = "it did not end within " + std::to_string(seconds) + " s: " + where();
  report_.checks.push_back(check);
  if (options.ended) options.ended(check);
}

Watch::Rank::Rank(Watch* watch, int rank)
    : watch_(watch), rank_(rank), state_(std::make_shared<RankState>()) {
  if (watch_ == nullptr) return;
  RunningCall::watch(&state_->call);
  current_rank = state_.get();
  const std::lock_guard lock(watch_->mutex_);
  watch_->ranks_[rank_] = state_;
}

Watch::Rank::~Rank() {
  if (watch_ == nullptr) return;
  RunningCall::watch(nullptr);
  current_rank = nullptr;
  const std::lock_guard lock(watch_->mutex_);
  watch_->ranks_.erase(rank_);
}

Report run_watched(const KitOptions& options, const std::function<void()>& kits) {
  const auto watch = std::make_shared<Watch>(options);
  const auto failure = std::make_shared<std::exception_ptr>();
  std::thread runs([watch, kits, failure] {
    current_watch = watch.get();
    at::set_num_threads(1);  // models of kits are small, and waiting threads would occupy the cores
    {
      const Watch::Rank itself(watch.get(), -1);
      try {
        kits();
      } catch (const GivenUp&) {
      } catch (...) {
        *failure = std::current_exception();
      }
    }
    const std::lock_guard lock(watch->mutex_);
    watch->done_ = true;
    watch->changed_.notify_all();
  });
  using std::chrono::milliseconds;
  const auto whole = milliseconds(static_cast<int64_t>(options.time_limit * 1000));
  std::unique_lock lock(watch->mutex_);
  while (!watch->done_) {
    const auto end = watch->began_ + milliseconds(static_cast<int64_t>(watch->limit() * 1000));
    if (!watch->rule_.empty() && Watch::Clock::now() >= end) {
      watch->give_up();
      lock.unlock();
      runs.detach();
      return watch->report_;
    }
    watch->changed_.wait_until(lock, watch->rule_.empty() ? Watch::Clock::now() + whole : end);
  }
  lock.unlock();
  runs.join();
  if (*failure) std::rethrow_exception(*failure);
  return watch->report_;
}

}  // namespace heddle::kits

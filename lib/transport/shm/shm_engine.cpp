// Spinning, sleeping, and the helper.
#include "lib/transport/shm/shm_engine.h"

#include <sched.h>

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace heddle::mesh {
namespace {

constexpr std::chrono::microseconds kNap{2000}, kLongNap{64000};  // at most, without a ring
constexpr int kLooks = 64, kCrowdedLooks = 8;                     // about 2 us, and 0.3 us
constexpr std::chrono::microseconds kSpin{200}, kCrowdedSpin{5}, kContested{30};

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The cores of all ranks of this machine: a launcher may have assigned cores to each.
int cores(const ShmEngineOptions& options) {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const auto& [rank, arena] : options.arenas) CPU_OR(&all, &all, &arena->head().cores);
  return CPU_COUNT(&all);
}

// Tells the watchdog and the other ranks that this one waits.
class WaitingEngine {
 public:
  WaitingEngine(Watch& watch) : watch_(watch) { watch_.set_waiting(true); }
  ~WaitingEngine() { watch_.set_waiting(false); }
  WaitingEngine(const WaitingEngine&) = delete;
  WaitingEngine& operator=(const WaitingEngine&) = delete;

 private:
  Watch& watch_;
};

}  // namespace

ShmEngine::ShmEngine(ShmEngineOptions options, Watch& watch)
    : options_(std::move(options)),
      watch_(watch),
      head_(options_.arenas.at(options_.rank)->head()),
      crowded_(static_cast<int>(options_.arenas.size()) > cores(options_)),
      spare_cores_(static_cast<int>(options_.arenas.size()) < cores(options_)) {
  watch_.interrupt(this, [this] { ring_loudly(head_.bell); });
  helper_ = std::thread([this] { help(); });
}

ShmEngine::~ShmEngine() {
  watch_.forget(this);
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  ring_loudly(head_.helper);
  ring_loudly(head_.bell);
  helper_.join();
}

std::unique_ptr<ShmGroup> ShmEngine::group(ShmGroupPlace place) {
  std::vector<std::shared_ptr<Arena>> arenas;
  for (const int rank : place.ranks) arenas.push_back(options_.arenas.at(rank));
  const auto lock = take_over();
  return std::make_unique<ShmGroup>(std::move(place), std::move(arenas));
}

void ShmEngine::forget(std::unique_ptr<ShmGroup> group) {
  const auto lock = take_over();
  std::erase(busy_, group.get());
  note_unfinished();
  group.reset();
}

std::unique_lock<std::mutex> ShmEngine::take_over() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) return lock;
  wanted_.fetch_add(1);
  lock.lock();
  wanted_.fetch_sub(1);
  return lock;
}

void ShmEngine::note_unfinished() {
  head_.unfinished.store(static_cast<uint32_t>(busy_.size()), std::memory_order_relaxed);
}

bool ShmEngine::advance(ShmGroup& group) {
  return !given_up_ && !group.idle() && group.advance();
}

bool ShmEngine::advance() {
  bool moved = false;
  for (size_t i = 0; i < busy_.size();) {
    moved = advance(*busy_[i]) || moved;
    if (busy_[i]->idle()) {
      busy_.erase(busy_.begin() + static_cast<std::ptrdiff_t>(i));
      note_unfinished();
    } else {
      ++i;
    }
  }
  return moved;
}

void ShmEngine::post(ShmGroup& group, const std::shared_ptr<Pending>& pending) {
  const auto lock = take_over();
  group.post(pending);
  // Puts what fits at once; the rest is left to the waiting thread, or to the helper.
  for (int i = 0; i < kSlots && advance(group); ++i) {
  }
  if (group.idle()) return;
  if (std::find(busy_.begin(), busy_.end(), &group) == busy_.end()) {
    busy_.push_back(&group);
    note_unfinished();
  }
  if (spare_cores_ && group.wants_help() && waiters_ == 0) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    ring(head_.helper);
  }
}

bool ShmEngine::done(Pending& pending) {
  const auto lock = take_over();
  if (pending.instead) return pending.instead->done();
  while (!pending.done && !pending.fault && advance()) {
  }
  return pending.done;
}

bool ShmEngine::spin(const Pending& pending) {
  const auto over = [&] { return pending.done || pending.fault || pending.instead; };
  // Cheap checks while the other side is probably at work.
  for (int look = 0; look < (crowded_ ? kCrowdedLooks : kLooks); ++look) {
    if (advance()) look = 0;
    if (over()) return true;
    pause();
  }
  const auto start = Clock::now();
  for (auto last = start;;) {
    ::sched_yield();  // another thread may need the core
    advance();
    if (over()) return true;
    const auto now = Clock::now();
    // Another thread computes on this core: a sleeper is scheduled sooner than a thread that yields.
    const bool contested = now - last > kContested;
    if (contested || now - start > (crowded_ ? kCrowdedSpin : kSpin)) return false;
    last = now;
  }
}

// While it lives, the rank itself moves its groups; the helper continues afterwards.
class ShmEngine::Driving {
 public:
  Driving(ShmEngine& engine, std::unique_lock<std::mutex>& lock) : engine_(engine), lock_(lock) {
    ++engine_.waiters_;
    engine_.head_.driven.store(1, std::memory_order_relaxed);
  }
  ~Driving() {
    if (!lock_.owns_lock()) lock_.lock();
    if (--engine_.waiters_ > 0) return;
    engine_.head_.driven.store(0, std::memory_order_relaxed);
    const auto wants = [](const ShmGroup* group) { return group->wants_help(); };
    if (engine_.spare_cores_ && std::any_of(engine_.busy_.begin(), engine_.busy_.end(), wants))
      ring(engine_.head_.helper);
  }
  Driving(const Driving&) = delete;
  Driving& operator=(const Driving&) = delete;

 private:
  ShmEngine& engine_;
  std::unique_lock<std::mutex>& lock_;
};

void ShmEngine::wait(ShmGroup& group, Pending& pending) {
  auto lock = take_over();
  const auto over = [&] { return pending.done || pending.fault || pending.instead; };
  const Driving driving(*this, lock);
  if (!over() && !spin(pending)) {
    const WaitingEngine waiting(watch_);
    const auto start = watch_.running_time();
    auto nap = kNap;
    while (!over()) {
      doze(lock, pending, nap);
      nap = std::min(nap * 2, kLongNap);
      while (!over() && advance()) nap = kNap;
      if (!over()) check(lock, group, pending, start);
    }
  }
  if (pending.fault) std::rethrow_exception(pending.fault);
}

void ShmEngine::doze(std::unique_lock<std::mutex>& lock, const Pending& pending,
                     std::chrono::microseconds most) {
  head_.bell.sleepers.fetch_add(1);
  const uint32_t seen = head_.bell.word.load();
  if (!advance()) {
    for (const ShmGroup* group : busy_) group->call_for_help();
    lock.unlock();
    sleep(head_.bell, seen, most);
    lock.lock();
  }
  head_.bell.sleepers.fetch_sub(1);
}

void ShmEngine::check(std::unique_lock<std::mutex>& lock, ShmGroup& group, const Pending& pending,
                      std::chrono::milliseconds start) {
  const auto elapsed = watch_.running_time() - start;
  const bool timed_out = given_up_ || elapsed >= options_.timeout;
  if (!watch_.lost() && !timed_out) return;
  const std::string waited = std::string(name_of(pending.call.operation)) + " on " + group.place().name;
  given_up_ = true;  // the handler of the error frees memory that is still written to
  lock.unlock();
  throw watch_.verdict(
      {waited, group.place().ranks, elapsed, timed_out ? Broken::How::timed_out : Broken::How::failed, ""});
}

// Called and woken by other ranks that wait for this one, and by the rank itself when it leaves much undone.
void ShmEngine::help() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (!busy_.empty() && waiters_ == 0) {
      help_on(lock);
      continue;
    }
    head_.helper.sleepers.fetch_add(1);
    const uint32_t seen = head_.helper.word.load();
    lock.unlock();
    sleep(head_.helper, seen, std::chrono::hours(1));
    lock.lock();
    head_.helper.sleepers.fetch_sub(1);
  }
}

void ShmEngine::help_on(std::unique_lock<std::mutex>& lock) {
  if (!advance()) {
    head_.bell.sleepers.fetch_add(1);
    const uint32_t seen = head_.bell.word.load();
    if (!advance()) {
      lock.unlock();
      sleep(head_.bell, seen, kLongNap);
      lock.lock();
    }
    head_.bell.sleepers.fetch_sub(1);
  }
  if (wanted_.load(std::memory_order_relaxed) == 0) return;
  lock.unlock();
  while (wanted_.load() > 0) ::sched_yield();
  lock.lock();
}

}  // namespace heddle::mesh

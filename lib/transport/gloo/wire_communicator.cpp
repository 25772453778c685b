// Posting to the thread of a group, and waiting for it without blocking on a dead rank.
#include "lib/transport/gloo/wire_communicator.h"

#include <chrono>
#include <thread>

#include "lib/transport/gloo/wire_collectives.h"

namespace heddle::mesh {
namespace {

constexpr std::chrono::milliseconds kSlice{100};  // between two checks of the watchdog
constexpr std::chrono::milliseconds kLetGo{500};  // for the thread to end

// Tells the watchdog that this rank waits.
class Waiting {
 public:
  explicit Waiting(Watch& watch) : watch_(watch) { watch_.set_waiting(true); }
  ~Waiting() { watch_.set_waiting(false); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  Watch& watch_;
};

// Aborts a transfer once its time is up or a rank is lost.
class Limit {
 public:
  Limit(Watch& watch, Transfer& transfer, std::chrono::milliseconds until)
      : watch_(watch), transfer_(transfer) {
    watch_.interrupt(
        &transfer_, [this] { transfer_.abort(); }, until);
  }
  ~Limit() { watch_.forget(&transfer_); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  Watch& watch_;
  Transfer& transfer_;
};

}  // namespace

class PostedWork : public Work {
 public:
  PostedWork(WireCommunicator& group, std::shared_ptr<Posted> posted)
      : group_(group), posted_(std::move(posted)) {}
  void wait() override {
    std::unique_lock lock(group_.line_->mutex);
    if (posted_->done) return;
    const Waiting waiting(group_.watch_);
    group_.wait(lock, group_.waited(posted_->call.operation), group_.watch_.running_time(),
                [&] { return posted_->done; });
  }
  bool done() const override {
    const std::lock_guard lock(group_.line_->mutex);
    return posted_->done;
  }

 private:
  WireCommunicator& group_;
  std::shared_ptr<Posted> posted_;
};

class DirectWork : public Work {
 public:
  DirectWork(WireCommunicator& group, std::shared_ptr<Direct> direct)
      : group_(group), direct_(std::move(direct)) {}
  void wait() override {
    const Waiting waiting(group_.watch_);
    const auto start = group_.watch_.running_time();
    const std::string waited = group_.waited(direct_->call.operation);
    {
      std::unique_lock lock(group_.line_->mutex);
      if (!direct_->started()) group_.wait(lock, waited, start, [&] { return direct_->started(); });
    }
    if (!direct_->transfer) group_.fail(waited, start, direct_->broken);
    const Limit limit(group_.watch_, *direct_->transfer, start + group_.timeout_);
    try {
      direct_->transfer->wait();
    } catch (const std::exception& error) {
      group_.fail(waited, start, error.what());
    }
  }

 private:
  WireCommunicator& group_;
  std::shared_ptr<Direct> direct_;
};

void Direct::start(Wire& wire) try {
  const int tag = direct_tag(call.tag);
  transfer = call.operation == Operation::send
                 ? wire.send(call.in.const_data_ptr(), call.in.nbytes(), call.peer, tag)
                 : wire.receive(call.out.mutable_data_ptr(), call.out.nbytes(), call.peer, tag);
} catch (const std::exception& error) {
  broken = error.what();
  if (broken.empty()) broken = "it could not start";
}

void WireLine::work(const std::function<std::unique_ptr<Wire>()>& connect, int rank, int size) {
  std::unique_lock lock(mutex, std::defer_lock);
  try {
    std::shared_ptr<Wire> made = connect();
    WireCollectives collectives(*made, rank, size);
    lock.lock();
    for (const auto& direct : early) direct->start(*made);
    early.clear();
    wire = made;
    changed.notify_all();
    for (;;) {
      // wait() without a limit needs the libstdc++ of GCC 12 and so a newer Linux.
      while (!changed.wait_for(lock, std::chrono::hours(1), [&] { return stop || !posted.empty(); })) {
      }
      if (stop) break;
      const auto next = posted.front();
      lock.unlock();
      collectives.run(next->call);
      lock.lock();
      posted.pop_front();
      next->done = true;
      changed.notify_all();
    }
  } catch (const std::exception& error) {
    if (!lock.owns_lock()) lock.lock();
    broken = error.what();
  }
  ended = true;
  changed.notify_all();
}

WireCommunicator::WireCommunicator(std::string name, int rank, std::vector<int> ranks,
                                   std::chrono::milliseconds timeout, Watch& watch)
    : CheckedCommunicator(std::move(name), rank, static_cast<int>(ranks.size())),
      ranks_(std::move(ranks)),
      timeout_(timeout),
      watch_(watch) {}

void WireCommunicator::start(std::function<std::unique_ptr<Wire>()> connect) {
  std::thread([line = line_, connect = std::move(connect), rank = rank(), size = size()] {
    line->work(connect, rank, size);
  }).detach();
  watch_.interrupt(this, [line = line_] {
    const std::lock_guard lock(line->mutex);
    if (line->wire) line->wire->abort();
    line->changed.notify_all();
  });
}

WireCommunicator::~WireCommunicator() {
  watch_.forget(this);
  std::unique_lock lock(line_->mutex);
  line_->stop = true;
  line_->early.clear();
  const auto end = std::chrono::steady_clock::now() + kLetGo;
  while (!line_->ended && std::chrono::steady_clock::now() < end) {
    line_->changed.notify_all();
    line_->changed.wait_for(lock, kSlice / 10, [&] { return line_->ended; });
    if (!line_->ended && line_->wire) line_->wire->abort();
  }
}

std::unique_ptr<Work> WireCommunicator::post(Call call) {
  check_cpu(call, name());
  const bool direct = call.operation == Operation::send || call.operation == Operation::receive;
  if (direct) return post_direct(std::move(call));
  auto posted = std::make_shared<Posted>(Posted{std::move(call)});
  const std::lock_guard lock(line_->mutex);
  line_->posted.push_back(posted);
  line_->changed.notify_all();
  return std::make_unique<PostedWork>(*this, std::move(posted));
}

// Never waits: the connecting thread, or another group of this rank, may need what the caller holds.
std::unique_ptr<Work> WireCommunicator::post_direct(Call call) {
  if (call.tag > (1 << 29))
    throw Error(ErrorCode::internal, "mesh", "tag " + std::to_string(call.tag) + " is above 2^29");
  if (call.in.defined() ? call.in.numel() == 0 : call.out.numel() == 0) return std::make_unique<DoneWork>();
  auto direct = std::make_shared<Direct>(Direct{std::move(call)});
  std::shared_ptr<Wire> wire;
  {
    const std::lock_guard lock(line_->mutex);
    wire = line_->wire;
    if (!wire) line_->early.push_back(direct);
  }
  if (wire) direct->start(*wire);
  return std::make_unique<DirectWork>(*this, std::move(direct));
}

void WireCommunicator::wait(std::unique_lock<std::mutex>& lock, const std::string& waited,
                            std::chrono::milliseconds start, const std::function<bool()>& ready) {
  while (!ready()) {
    if (line_->ended || watch_.lost() || watch_.running_time() - start >= timeout_) {
      const std::string broken = line_->broken;
      lock.unlock();
      fail(waited, start, broken);
    }
    line_->changed.wait_for(lock, kSlice);
  }
}

void WireCommunicator::fail(const std::string& waited, std::chrono::milliseconds start,
                            const std::string& broken) {
  const auto elapsed = watch_.running_time() - start;
  const auto how = elapsed >= timeout_ ? Broken::How::timed_out : Broken::How::failed;
  throw watch_.verdict({waited, ranks_, elapsed, how, broken});
}

}  // namespace heddle::mesh

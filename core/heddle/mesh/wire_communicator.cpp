// Posting to the thread of a group, and waiting for it without ever waiting for a dead rank.
#include "heddle/mesh/wire_communicator.h"

#include <thread>

#include "heddle/mesh/wire_collectives.h"

namespace heddle::mesh {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSlice{100};  // between two looks at the watch
constexpr std::chrono::milliseconds kLetGo{500};  // for the thread to end

std::chrono::milliseconds since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
}

// Tells the watch that this rank waits.
class Waiting {
 public:
  explicit Waiting(Watch& watch) : watch_(watch) { watch_.set_waiting(true); }
  ~Waiting() { watch_.set_waiting(false); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  Watch& watch_;
};

}  // namespace

class PostedWork : public Work {
 public:
  PostedWork(WireCommunicator& group, std::shared_ptr<Posted> posted)
      : group_(group), posted_(std::move(posted)) {}
  void wait() override {
    std::unique_lock lock(group_.line_->mutex);
    if (posted_->done) return;
    group_.wait(lock, group_.waited(posted_->call.operation), [&] { return posted_->done; });
  }
  bool done() const override {
    const std::lock_guard lock(group_.line_->mutex);
    return posted_->done;
  }

 private:
  WireCommunicator& group_;
  std::shared_ptr<Posted> posted_;
};

class TransferWork : public Work {
 public:
  TransferWork(WireCommunicator& group, Call call, std::unique_ptr<Transfer> transfer)
      : group_(group), call_(std::move(call)), transfer_(std::move(transfer)) {}
  void wait() override {
    const Waiting waiting(group_.watch_);
    const auto start = Clock::now();
    try {
      transfer_->wait_for(group_.timeout_);
    } catch (const std::exception& error) {
      group_.fail(group_.waited(call_.operation), start, error.what());
    }
  }

 private:
  WireCommunicator& group_;
  Call call_;  // keeps the tensor
  std::unique_ptr<Transfer> transfer_;
};

void WireLine::work(const std::function<std::unique_ptr<Wire>()>& connect, int rank, int size) {
  std::unique_lock lock(mutex, std::defer_lock);
  try {
    std::shared_ptr<Wire> made = connect();
    WireCollectives collectives(*made, rank, size);
    lock.lock();
    wire = made;
    changed.notify_all();
    for (;;) {
      changed.wait(lock, [&] { return stop || !posted.empty(); });
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
  const auto end = Clock::now() + kLetGo;
  while (!line_->ended && Clock::now() < end) {
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

std::unique_ptr<Work> WireCommunicator::post_direct(Call call) {
  const auto start = Clock::now();
  std::shared_ptr<Wire> wire;
  {
    std::unique_lock lock(line_->mutex);
    if (!line_->wire) wait(lock, waited(call.operation), [&] { return line_->wire != nullptr; });
    wire = line_->wire;
  }
  if (call.tag > (1 << 29))
    throw Error(ErrorCode::internal, "mesh", "tag " + std::to_string(call.tag) + " is above 2^29");
  if (call.in.defined() ? call.in.numel() == 0 : call.out.numel() == 0) return std::make_unique<DoneWork>();
  try {
    auto transfer =
        call.operation == Operation::send
            ? wire->send(call.in.const_data_ptr(), call.in.nbytes(), call.peer, direct_tag(call.tag))
            : wire->receive(call.out.mutable_data_ptr(), call.out.nbytes(), call.peer, direct_tag(call.tag));
    return std::make_unique<TransferWork>(*this, std::move(call), std::move(transfer));
  } catch (const std::exception& error) {
    const Waiting waiting(watch_);
    fail(waited(call.operation), start, error.what());
  }
}

void WireCommunicator::wait(std::unique_lock<std::mutex>& lock, const std::string& waited,
                            const std::function<bool()>& ready) {
  const Waiting waiting(watch_);
  const auto start = Clock::now();
  while (!ready()) {
    if (line_->ended || watch_.lost() || since(start) >= timeout_) {
      const std::string broken = line_->broken;
      lock.unlock();
      fail(waited, start, broken);
    }
    line_->changed.wait_for(lock, kSlice);
  }
}

void WireCommunicator::fail(const std::string& waited, Clock::time_point start, const std::string& broken) {
  const auto elapsed = since(start);
  throw watch_.verdict(waited, ranks_, elapsed, elapsed >= timeout_, broken);
}

}  // namespace heddle::mesh

// Thread ranks: their rendezvous, their communicators, and the threads themselves.
#include "heddle/transport/threads.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <thread>

#include "heddle/base/error.h"
#include "heddle/mesh/call.h"
#include "lib/transport/threads/thread_world.h"

namespace heddle {
namespace mesh {
namespace {

class ThreadWork : public Work {
 public:
  ThreadWork(std::shared_ptr<ThreadWorld> world, std::shared_ptr<ThreadGroup> group,
             std::shared_ptr<ThreadCall> shared_call, std::string waited)
      : world_(std::move(world)),
        group_(std::move(group)),
        shared_call_(std::move(shared_call)),
        waited_(std::move(waited)) {}

  void wait() override {
    std::unique_lock lock(world_->mutex);
    const auto awaited = [&] {
      std::vector<int> ranks;
      for (size_t i = 0; i < shared_call_->came.size(); ++i) {
        if (!shared_call_->came[i]) ranks.push_back(group_->ranks[i]);
      }
      return ranks;
    };
    world_->wait(
        lock, waited_, [&] { return shared_call_->done; }, awaited);
    if (shared_call_->fault) std::rethrow_exception(shared_call_->fault);
  }
  bool done() const override {
    const std::lock_guard lock(world_->mutex);
    return shared_call_->done;
  }

 private:
  std::shared_ptr<ThreadWorld> world_;
  std::shared_ptr<ThreadGroup> group_;
  std::shared_ptr<ThreadCall> shared_call_;
  std::string waited_;
};

class ThreadCommunicator : public CheckedCommunicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadWorld> world, std::shared_ptr<ThreadGroup> group, std::string name,
                     int rank)
      : CheckedCommunicator(std::move(name), rank, static_cast<int>(group->ranks.size())),
        world_(std::move(world)),
        group_(std::move(group)) {}

 protected:
  std::unique_ptr<Work> post(Call call) override {
    check_cpu(call, name());
    std::string waited = std::string(name_of(call.operation)) + " on " + name();
    const bool direct = call.operation == Operation::send || call.operation == Operation::receive;
    std::unique_lock lock(world_->mutex);
    const auto shared_call = direct ? transfer(call) : collective();
    shared_call->calls[rank()] = std::move(call);
    shared_call->came[rank()] = true;
    if (--shared_call->missing == 0) {
      lock.unlock();  // every rank of the call has come, so no other rank accesses it
      finish(*shared_call, direct);
      lock.lock();
      shared_call->done = true;
      world_->changed.notify_all();
    }
    return std::make_unique<ThreadWork>(world_, group_, shared_call, std::move(waited));
  }

 private:
  std::shared_ptr<ThreadCall> make(int missing) const {
    auto shared_call = std::make_shared<ThreadCall>();
    shared_call->calls.resize(size());
    shared_call->came.assign(size(), missing != size());
    shared_call->missing = missing;
    return shared_call;
  }

  std::shared_ptr<ThreadCall> collective() {
    const int64_t number = number_++;
    auto& shared_call = group_->collectives[number];
    if (!shared_call) shared_call = make(size());
    const auto found = shared_call;
    if (found->missing == 1) group_->collectives.erase(number);
    return found;
  }

  // The transfer that the other side has opened, or a new one.
  std::shared_ptr<ThreadCall> transfer(const Call& call) {
    const bool sends = call.operation == Operation::send;
    const int source = sends ? rank() : call.peer, target = sends ? call.peer : rank();
    auto& waiting = group_->transfers[{source, target, call.tag}];
    if (!waiting.empty() && !waiting.front()->came[rank()]) {
      const auto found = waiting.front();
      waiting.pop_front();
      return found;
    }
    auto shared_call = make(2);
    shared_call->came.assign(size(), true);
    shared_call->came[source] = shared_call->came[target] = false;
    return waiting.emplace_back(shared_call);
  }

  void finish(ThreadCall& shared_call, bool direct) const {
    try {
      if (direct) {
        move_across(shared_call);
      } else {
        compare(shared_call);
        carry_out(shared_call.calls);
      }
    } catch (...) {
      shared_call.fault = std::current_exception();
    }
  }

  void move_across(ThreadCall& shared_call) const {
    Call *send = nullptr, *receive = nullptr;
    for (Call& call : shared_call.calls) {
      if (call.in.defined()) send = &call;
      if (call.out.defined()) receive = &call;
    }
    if (send->in.numel() != receive->out.numel() || send->in.scalar_type() != receive->out.scalar_type()) {
      throw Error(ErrorCode::internal, "mesh",
                  "on " + name() + " a " + send->describe() + " meets a " + receive->describe());
    }
    Call copy{.operation = Operation::all_gather, .out = receive->out, .in = send->in};
    carry_out({&copy, 1});
  }

  void compare(const ThreadCall& shared_call) const {
    const std::string first = shared_call.calls[0].describe();
    for (int i = 1; i < size(); ++i) {
      const std::string other = shared_call.calls[i].describe();
      if (other == first) continue;
      throw Error(ErrorCode::internal, "mesh",
                  "ranks call different collectives on " + name() + ": rank " +
                      std::to_string(group_->ranks[0]) + " " + first + ", rank " +
                      std::to_string(group_->ranks[i]) + " " + other);
    }
  }

  std::shared_ptr<ThreadWorld> world_;
  std::shared_ptr<ThreadGroup> group_;
  int64_t number_ = 0;
};

class ThreadRendezvous : public Rendezvous {
 public:
  ThreadRendezvous(std::shared_ptr<ThreadWorld> world, int rank) : world_(std::move(world)), rank_(rank) {}
  int rank() const override { return rank_; }
  int world_size() const override { return world_->size; }
  int local_rank() const override { return rank_; }
  int local_world_size() const override { return world_->size; }
  const Log& log() const override { return world_->log; }
  std::chrono::milliseconds timeout() const override { return world_->timeout; }

  std::string hold_rendezvous(const std::string& key, const std::string& text,
                              const Answer& answer) override {
    std::unique_lock lock(world_->mutex);  // of exchanged_ too: a rank may have threads beside its own
    const std::string once = key + "#" + std::to_string(exchanged_[key]++), waited = "the exchange of " + key;
    TextExchange& exchange = world_->texts[once];
    exchange.texts[rank_] = text;
    world_->changed.notify_all();
    const auto absent = [&] {
      std::vector<int> ranks;
      for (int rank = 0; rank < world_->size; ++rank)
        if (!exchange.texts.contains(rank)) ranks.push_back(rank);
      return ranks;
    };
    world_->wait(
        lock, waited, [&] { return exchange.texts.size() == static_cast<size_t>(world_->size); }, absent);
    if (rank_ == 0) exchange.answers = answered(lock, exchange, answer);
    world_->changed.notify_all();
    world_->wait(
        lock, waited, [&] { return !exchange.answers.empty(); }, [] { return std::vector{0}; });
    std::string own = exchange.answers[exchange.answers.size() == 1 ? 0 : static_cast<size_t>(rank_)];
    if (++exchange.read == world_->size) world_->texts.erase(once);
    return own;
  }

  std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) override {
    if (ranks.size() == 1) return std::make_unique<AloneCommunicator>(name);
    const std::vector<int> members(ranks.begin(), ranks.end());
    const int place = static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin());
    const std::lock_guard lock(world_->mutex);
    auto& group = world_->groups[{members, made_[members]++}];
    if (!group) {
      group = std::make_shared<ThreadGroup>();
      group->ranks = members;
    }
    return std::make_unique<ThreadCommunicator>(world_, group, name, place);
  }

 private:
  // Computes rank 0's answer, while the others may continue with other exchanges.
  static std::vector<std::string> answered(std::unique_lock<std::mutex>& lock, TextExchange& exchange,
                                           const Answer& answer) {
    std::vector<std::string> texts;
    for (auto& [rank, given] : exchange.texts) texts.push_back(given);
    lock.unlock();
    std::vector<std::string> answers = answer(texts);
    lock.lock();
    return answers;
  }

  std::shared_ptr<ThreadWorld> world_;
  int rank_;
  std::map<std::string, int> exchanged_;
  std::map<std::vector<int>, int> made_;
};

}  // namespace
}  // namespace mesh

ThreadWorld::ThreadWorld(int size, std::chrono::milliseconds timeout, Log log)
    : world_(std::make_shared<mesh::ThreadWorld>(size, timeout, std::move(log))) {
  for (int rank = 0; rank < size; ++rank)
    ranks_.push_back(std::make_unique<mesh::ThreadRendezvous>(world_, rank));
}

ThreadWorld::~ThreadWorld() = default;

Rendezvous& ThreadWorld::rank(int rank) {
  return *ranks_.at(rank);
}

void ThreadWorld::run(const std::function<void(Rendezvous&)>& body) {
  std::mutex mutex;
  std::exception_ptr first, release;  // the first real error; else a release
  const auto keep = [&](int rank, const std::string& text, bool real) {
    const std::lock_guard lock(mutex);
    auto& slot = real ? first : release;
    if (!slot) slot = std::current_exception();
    world_->fail(rank, text);
  };
  const auto one = [&](int rank) {
    at::set_num_threads(1);
    try {
      body(*ranks_[rank]);
      world_->leave(rank);
    } catch (const Error& error) {
      keep(rank, error.message(), error.code() != ErrorCode::rank_lost);
    } catch (const std::exception& error) {
      keep(rank, error.what(), true);
    } catch (...) {
      keep(rank, "an exception of an unknown type", true);
    }
  };
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) threads.emplace_back(one, static_cast<int>(rank));
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
  if (release) std::rethrow_exception(release);
}

void ThreadWorld::run(int size, const std::function<void(Rendezvous&)>& body) {
  ThreadWorld(size).run(body);
}

}  // namespace heddle

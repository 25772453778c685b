// Connections on demand, and messages that wait for them.
#include "lib/transport/gloo/sparse_wire.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <stdexcept>
#include <thread>
#include <utility>

namespace heddle::mesh {
namespace {

// A message that was posted before its connection was there.
struct Message {
  std::function<std::unique_ptr<Transfer>(Wire& wire, int peer)> start;  // null once it is cancelled
  std::unique_ptr<Transfer> transfer;
  bool aborted = false;
};

}  // namespace

struct Edge {
  std::mutex mutex;
  std::condition_variable changed;
  std::shared_ptr<Wire> wire;  // null until it is connected
  std::string broken;          // why it is not
  std::deque<std::shared_ptr<Message>> early;
  int peer = 0;  // in that wire

  void connect(const std::function<std::unique_ptr<Wire>(int)>& pair, int other);
};

void Edge::connect(const std::function<std::unique_ptr<Wire>(int)>& pair, int other) {
  std::shared_ptr<Wire> made;
  std::string failure;
  try {
    made = pair(other);
  } catch (const std::exception& error) {
    failure = std::string("the connection was not made: ") + error.what();
  }
  const std::lock_guard lock(mutex);
  try {
    for (const auto& message : early)
      if (made && broken.empty() && message->start) message->transfer = message->start(*made, peer);
  } catch (const std::exception& error) {
    failure = error.what();
  }
  early.clear();
  if (broken.empty()) broken = failure;
  wire = std::move(made);
  changed.notify_all();
}

namespace {

class EarlyTransfer : public Transfer {
 public:
  EarlyTransfer(std::shared_ptr<Edge> edge, std::shared_ptr<Message> message)
      : edge_(std::move(edge)), message_(std::move(message)) {}
  ~EarlyTransfer() override {
    const std::lock_guard lock(edge_->mutex);
    message_->start = nullptr;
    message_->transfer.reset();
  }
  void wait() override {
    {
      std::unique_lock lock(edge_->mutex);
      const auto decided = [&] { return message_->transfer || message_->aborted || !edge_->broken.empty(); };
      // wait() without a limit needs the libstdc++ of GCC 12 and so a newer Linux.
      while (!edge_->changed.wait_for(lock, std::chrono::hours(1), decided)) {
      }
      if (!message_->transfer)
        throw std::runtime_error(edge_->broken.empty() ? "the wait was aborted" : edge_->broken);
    }
    message_->transfer->wait();
  }
  void abort() override {
    const std::lock_guard lock(edge_->mutex);
    message_->aborted = true;
    if (message_->transfer) message_->transfer->abort();
    edge_->changed.notify_all();
  }

 private:
  const std::shared_ptr<Edge> edge_;
  const std::shared_ptr<Message> message_;
};

}  // namespace

SparseWire::SparseWire(int rank, std::function<std::unique_ptr<Wire>(int)> pair,
                       std::function<std::unique_ptr<Wire>()> mesh)
    : rank_(rank), pair_(std::move(pair)), connect_mesh_(std::move(mesh)) {}

SparseWire::~SparseWire() = default;

std::shared_ptr<Edge> SparseWire::edge_to(int peer) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Edge>& edge = edges_[peer];
  if (edge) return edge;
  edge = std::make_shared<Edge>();
  edge->peer = rank_ < peer ? 1 : 0;
  std::thread([edge = edge, pair = pair_, peer] { edge->connect(pair, peer); }).detach();
  return edge;
}

std::unique_ptr<Transfer> SparseWire::post(int peer, int tag, Start start) {
  std::shared_ptr<Wire> mesh;
  if (tag % 2 == 1) {
    const std::lock_guard lock(mutex_);
    mesh = mesh_;
  }
  if (mesh) return start(*mesh, peer);
  const std::shared_ptr<Edge> edge = edge_to(peer);
  const std::lock_guard lock(edge->mutex);
  if (!edge->broken.empty()) throw std::runtime_error(edge->broken);
  if (edge->wire) return start(*edge->wire, edge->peer);
  auto message = std::make_shared<Message>();
  message->start = std::move(start);
  edge->early.push_back(message);
  return std::make_unique<EarlyTransfer>(edge, std::move(message));
}

std::unique_ptr<Transfer> SparseWire::send(const void* data, size_t count, int peer, int tag) {
  return post(peer, tag, [=](Wire& wire, int at) { return wire.send(data, count, at, tag); });
}

std::unique_ptr<Transfer> SparseWire::receive(void* data, size_t count, int peer, int tag) {
  return post(peer, tag, [=](Wire& wire, int at) { return wire.receive(data, count, at, tag); });
}

void SparseWire::open_all() {
  {
    const std::lock_guard lock(mutex_);
    if (mesh_) return;
  }
  std::shared_ptr<Wire> made = connect_mesh_();
  const std::lock_guard lock(mutex_);
  mesh_ = std::move(made);
}

void SparseWire::abort() {
  const std::lock_guard lock(mutex_);
  if (mesh_) mesh_->abort();
  for (const auto& [peer, edge] : edges_) {
    const std::lock_guard edge_lock(edge->mutex);
    if (edge->wire)
      edge->wire->abort();
    else if (edge->broken.empty())
      edge->broken = "the connection was aborted";
    edge->changed.notify_all();
  }
}

size_t SparseWire::connections() const {
  const std::lock_guard lock(mutex_);
  return edges_.size();
}

}  // namespace heddle::mesh

// Each call works on copies; the caller's tensors get the results in wait().
#include "hostile.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <exception>
#include <limits>
#include <utility>

#include "../gathered.h"
#include "heddle/mesh/call.h"
#include "heddle/model/autograd_node.h"

namespace heddle::kits {
namespace {

// The data without autograd and without its version counter, as a transport writes them.
at::Tensor bytes_of(const at::Tensor& tensor) {
  return tensor.variable_data();
}

class LateWork : public Work {
 public:
  LateWork(std::unique_ptr<Work> inner, at::Tensor out, at::Tensor late, std::string call,
           std::shared_ptr<WorkFaults> faults)
      : inner_(std::move(inner)),
        out_(std::move(out)),
        late_(std::move(late)),
        call_(std::move(call)),
        faults_(std::move(faults)),
        exceptions_(std::uncaught_exceptions()) {}
  ~LateWork() override {
    if (!waited_ && std::uncaught_exceptions() <= exceptions_)
      faults_->add("a Work of " + call_ + " was dropped without wait()");
  }
  void wait() override {
    if (std::exchange(waited_, true)) return faults_->add("wait() was called twice on a Work of " + call_);
    inner_->wait();
    if (!late_.defined()) return;
    const model::BelowAutograd below;
    bytes_of(out_).copy_(late_);
  }
  bool done() const override { return inner_->done(); }

 private:
  std::unique_ptr<Work> inner_;
  at::Tensor out_, late_;
  std::string call_;
  std::shared_ptr<WorkFaults> faults_;
  int exceptions_;
  bool waited_ = false;
};

class LateCommunicator : public Communicator {
 public:
  LateCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<WorkFaults> faults)
      : inner_(std::move(inner)), faults_(std::move(faults)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }

  std::unique_ptr<Work> all_gather(at::Tensor out, at::Tensor in) override {
    const at::Tensor late = empty(out);
    return posted("all_gather", inner_->all_gather(late, copy(in)), out, late);
  }
  std::unique_ptr<Work> reduce_scatter(at::Tensor out, at::Tensor in, Reduce reduce) override {
    const at::Tensor late = empty(out);
    return posted("reduce_scatter", inner_->reduce_scatter(late, copy(in), reduce), out, late);
  }
  std::unique_ptr<Work> all_reduce(at::Tensor inout, Reduce reduce) override {
    const at::Tensor late = copy(inout);
    return posted("all_reduce", inner_->all_reduce(late, reduce), inout, late);
  }
  std::unique_ptr<Work> all_to_all(at::Tensor out, at::Tensor in, std::span<const int64_t> out_rows,
                                   std::span<const int64_t> in_rows) override {
    const at::Tensor late = empty(out);
    return posted("all_to_all", inner_->all_to_all(late, copy(in), out_rows, in_rows), out, late);
  }
  std::unique_ptr<Work> broadcast(at::Tensor inout, int root) override {
    const at::Tensor late = copy(inout);
    return posted("broadcast", inner_->broadcast(late, root), inout, late);
  }
  std::unique_ptr<Work> send(at::Tensor tensor, int peer, int tag) override {
    return posted("send", inner_->send(copy(tensor), peer, tag), tensor, {});
  }
  std::unique_ptr<Work> receive(at::Tensor tensor, int peer, int tag) override {
    const at::Tensor late = empty(tensor);
    return posted("receive", inner_->receive(late, peer, tag), tensor, late);
  }

 private:
  // A tensor that the call's rules refuse is handed on as it is, so that they see it.
  static at::Tensor copy(const at::Tensor& tensor) {
    const model::BelowAutograd below;
    return tensor.defined() && tensor.is_contiguous() ? bytes_of(tensor).clone() : tensor;
  }
  static at::Tensor empty(const at::Tensor& tensor) {
    const model::BelowAutograd below;
    return tensor.defined() && tensor.is_contiguous() ? at::empty_like(bytes_of(tensor)) : tensor;
  }
  std::unique_ptr<Work> posted(const char* call, std::unique_ptr<Work> work, const at::Tensor& out,
                               const at::Tensor& late) {
    const model::BelowAutograd below;
    if (late.defined() && out.is_floating_point())
      bytes_of(out).fill_(std::numeric_limits<double>::quiet_NaN());
    return std::make_unique<LateWork>(std::move(work), out, late, std::string(call) + " on " + name(),
                                      faults_);
  }

  std::unique_ptr<Communicator> inner_;
  std::shared_ptr<WorkFaults> faults_;
};

}  // namespace

void WorkFaults::add(const std::string& fault) {
  const std::lock_guard lock(mutex_);
  if (first_.empty()) first_ = fault;
}

void WorkFaults::check() const {
  const std::lock_guard lock(mutex_);
  if (!first_.empty())
    found(first_ +
          " (heddle/mesh/communicator.h: wait() once, before the tensors are read or written again)");
}

std::unique_ptr<Communicator> LateRendezvous::group(const std::string& name, std::span<const int> ranks) {
  return std::make_unique<LateCommunicator>(inner_.group(name, ranks), faults_);
}

}  // namespace heddle::kits

// Copies to the host, the host's collective, and a copy back.
#include "cuda/staged_group.h"

#include <ATen/ops/empty.h>

#include <chrono>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <thread>
#include <utility>

#include "cuda/host_call.h"

namespace heddle::nccl {
namespace {

at::Tensor room_on_host(const at::Tensor& like) {
  return at::empty(like.sizes(), at::TensorOptions(like.scalar_type()).pinned_memory(true));
}

std::string_view asked() {
  const char* const given = std::getenv("HEDDLE_SHARED_GPU");
  return given == nullptr ? "" : given;
}

using Delay = std::chrono::microseconds;

class StagedWork : public Work {
 public:
  StagedWork(std::unique_ptr<Work> inner, mesh::Call on_host, at::Tensor out, Delay delay)
      : inner_(std::move(inner)), on_host_(std::move(on_host)), out_(std::move(out)), delay_(delay) {}
  void wait() override {
    inner_->wait();
    std::this_thread::sleep_for(std::exchange(delay_, Delay(0)));
    if (out_.defined()) out_.variable_data().copy_(on_host_.out, /*non_blocking=*/true);
    out_.reset();
  }

 private:
  std::unique_ptr<Work> inner_;
  mesh::Call on_host_;  // keeps its tensors until the end
  at::Tensor out_;
  Delay delay_;
};

}  // namespace

bool shares_gpus() {
  return asked() == "1" || asked() == "late";
}

StagedGroup::StagedGroup(std::string name, int rank, int size, std::unique_ptr<Communicator> host)
    : CheckedCommunicator(std::move(name), rank, size),
      host_(std::move(host)),
      late_(asked() == "late"),
      draw_(static_cast<unsigned>(rank + 1)) {}

std::unique_ptr<Work> StagedGroup::post(mesh::Call call) {
  const at::Tensor& shown = call.in.defined() ? call.in : call.out;
  if (shown.is_cpu()) return call_on_host(*host_, call);
  mesh::Call staged = call;
  if (call.in.defined()) {
    staged.in = room_on_host(call.in);
    staged.in.copy_(call.in.detach());
  }
  const bool in_place = call.in.defined() && call.in.is_same(call.out);
  if (call.out.defined()) staged.out = in_place ? staged.in : room_on_host(call.out);
  const auto delay = [&] { return Delay(late_ ? draw_() % 2000 : 0); };
  if (late_ && call.out.defined() && call.out.is_floating_point())
    call.out.variable_data().fill_(std::numeric_limits<double>::quiet_NaN());
  std::this_thread::sleep_for(delay());
  std::unique_ptr<Work> inner = call_on_host(*host_, staged);
  return std::make_unique<StagedWork>(std::move(inner), std::move(staged), call.out, delay());
}

}  // namespace heddle::nccl

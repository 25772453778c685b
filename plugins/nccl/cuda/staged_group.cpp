// Copies to the host, the host's collective, and a copy back.
#include "cuda/staged_group.h"

#include <ATen/ops/empty.h>

#include <cstdlib>
#include <string_view>
#include <utility>

#include "cuda/host_call.h"

namespace heddle::nccl {
namespace {

at::Tensor room_on_host(const at::Tensor& like) {
  return at::empty(like.sizes(), at::TensorOptions(like.scalar_type()).pinned_memory(true));
}

class StagedWork : public Work {
 public:
  StagedWork(std::unique_ptr<Work> inner, mesh::Call on_host, at::Tensor out)
      : inner_(std::move(inner)), on_host_(std::move(on_host)), out_(std::move(out)) {}
  void wait() override {
    inner_->wait();
    if (out_.defined()) out_.variable_data().copy_(on_host_.out, /*non_blocking=*/true);
    out_.reset();
  }

 private:
  std::unique_ptr<Work> inner_;
  mesh::Call on_host_;  // its tensors live until then
  at::Tensor out_;
};

}  // namespace

bool shares_gpus() {
  const char* const given = std::getenv("HEDDLE_SHARED_GPU");
  return given != nullptr && std::string_view(given) == "1";
}

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
  std::unique_ptr<Work> inner = call_on_host(*host_, staged);
  return std::make_unique<StagedWork>(std::move(inner), std::move(staged), call.out);
}

}  // namespace heddle::nccl

// The only bench that includes Gloo.
#include "bench/torch_gloo.h"

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace heddle::bench {

struct TorchGloo::Group {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
};

TorchGloo::TorchGloo(const std::string& file, int rank, int size) : group_(std::make_unique<Group>()) {
  auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::minutes(5));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface("lo"));
  group_->gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::FileStore>(file, size),
                                                             rank, size, options);
}

TorchGloo::~TorchGloo() = default;

void TorchGloo::all_gather(at::Tensor& out, at::Tensor& in) {
  group_->gloo->_allgather_base(out, in)->wait();
}

void TorchGloo::reduce_scatter(at::Tensor& out, at::Tensor& in) {
  group_->gloo->_reduce_scatter_base(out, in)->wait();
}

void TorchGloo::all_reduce(at::Tensor& inout) {
  std::vector<at::Tensor> tensors = {inout};
  group_->gloo->allreduce(tensors)->wait();
}

}  // namespace heddle::bench

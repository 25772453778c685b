// PyTorch's own process group over Gloo, as a peer to compare with.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

namespace heddle::bench {

class TorchGloo {
 public:
  // file: where the ranks meet; all give the same path, which does not exist yet.
  TorchGloo(const std::string& file, int rank, int size);
  ~TorchGloo();
  TorchGloo(const TorchGloo&) = delete;
  TorchGloo& operator=(const TorchGloo&) = delete;

  void all_gather(at::Tensor& out, at::Tensor& in);
  void reduce_scatter(at::Tensor& out, at::Tensor& in);
  void all_reduce(at::Tensor& inout);

 private:
  struct Group;
  std::unique_ptr<Group> group_;
};

}  // namespace heddle::bench

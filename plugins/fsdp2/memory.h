// Memory shared by groups: staging buffers of gathers, and storage for whole parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace heddle::fsdp2 {

// Of one stage. As many buffers as there are gathers in flight, each as large as the largest group. On the
// CPU the last storages that were freed are kept, because new pages cost more than the copy into them; a
// device's allocator keeps them itself.
class Memory {
 public:
  // Called by every group once, before the first allocation.
  void expect(at::ScalarType dtype, int64_t elements);
  at::Tensor take(at::ScalarType dtype, c10::Device device);
  void give(at::Tensor buffer) { buffers_.push_back(std::move(buffer)); }

  // Gives the storage of `alias` and all its views `bytes` uninitialised bytes, or frees it.
  void fill(const at::Tensor& alias, size_t bytes);
  void free(const at::Tensor& alias);

 private:
  static constexpr size_t kKept = 2;
  struct Kept {
    size_t bytes;
    c10::DataPtr data;
  };
  std::vector<std::pair<at::ScalarType, int64_t>> largest_;
  std::vector<at::Tensor> buffers_;
  std::vector<Kept> kept_;  // the oldest first
};

}  // namespace heddle::fsdp2

// Memory that groups share: staging buffers of gathers, and storage for whole parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace heddle::fsdp2 {

// Memory of one stage. It has one staging buffer per gather in flight, each as large as the largest group. On
// the CPU the most recently freed storages are kept, because new pages cost more than the copy into them. On
// a device the allocator keeps freed storages.
class Memory {
 public:
  // Registers a group's size. Every group calls it once before the first allocation.
  void expect(at::ScalarType dtype, int64_t elements);
  at::Tensor take(at::ScalarType dtype, c10::Device device);
  void give(at::Tensor buffer) { buffers_.push_back(std::move(buffer)); }

  // Gives the storage of `alias` and all its views `bytes` uninitialized bytes, or frees it.
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
  std::vector<Kept> kept_;  // oldest first
};

}  // namespace heddle::fsdp2

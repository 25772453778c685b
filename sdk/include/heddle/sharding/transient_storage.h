// Storage that is allocated only while a tensor is unsharded, by the allocator or in one of two fixed
// buffers.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>

namespace heddle::sharding {

// Two buffers that stay allocated, for tensors that are unsharded alternately.
class DoubleBuffer {
 public:
  DoubleBuffer(size_t bytes, c10::Device device);
  size_t bytes() const { return bytes_; }
  // Returns the index of a free buffer, or -1.
  int acquire();
  void release(int index) { busy_[index] = false; }
  const at::Tensor& buffer(int index) const { return buffers_[index]; }

 private:
  size_t bytes_;
  std::array<at::Tensor, 2> buffers_;
  std::array<bool, 2> busy_ = {};
};

// The storage of one tensor and its views. Views are created once and are valid after each acquire().
class TransientStorage {
 public:
  TransientStorage() = default;
  explicit TransientStorage(at::Tensor tensor);  // the tensor's memory is allocated
  const at::Tensor& tensor() const { return tensor_; }
  size_t bytes() const { return bytes_; }

  void use(DoubleBuffer* double_buffer) {
    double_buffer_ = double_buffer;
  }                              // called before the first acquire(); bytes() must fit
  void keep() { kept_ = true; }  // keeps the memory once acquired

  void acquire();  // the memory is uninitialized
  void release();
  bool taken() const { return taken_; }

 private:
  at::Tensor tensor_;
  size_t bytes_ = 0;
  DoubleBuffer* double_buffer_ = nullptr;
  int place_ = -1;
  bool taken_ = true, kept_ = false, there_ = true;
};

}  // namespace heddle::sharding

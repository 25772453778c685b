// The memory under a whole tensor that is there only now and then: the allocator's, or one of two buffers.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>

namespace heddle::megatron_fsdp {

// Two buffers that stay, for tensors which are whole in turn.
class Lane {
 public:
  Lane(size_t bytes, c10::Device device);
  size_t bytes() const { return bytes_; }
  // The index of a buffer that is free, or -1.
  int take();
  void give(int index) { busy_[index] = false; }
  const at::Tensor& buffer(int index) const { return buffers_[index]; }

 private:
  size_t bytes_;
  std::array<at::Tensor, 2> buffers_;
  std::array<bool, 2> busy_ = {};
};

// The storage of one tensor and its views. Views are made once; they read what lies there after each take().
class Loan {
 public:
  Loan() = default;
  explicit Loan(at::Tensor tensor);  // whose memory is there now
  const at::Tensor& tensor() const { return tensor_; }
  size_t bytes() const { return bytes_; }

  void use(Lane* lane) { lane_ = lane; }  // before the first take(); bytes() fit into it
  void keep() { kept_ = true; }           // once taken, the memory stays

  void take();  // memory without values
  void give();
  bool taken() const { return taken_; }

 private:
  at::Tensor tensor_;
  size_t bytes_ = 0;
  Lane* lane_ = nullptr;
  int place_ = -1;
  bool taken_ = true, kept_ = false, there_ = true;
};

}  // namespace heddle::megatron_fsdp

// LateWork, the Work of a strict communicator. It holds copies, and compares the caller's tensors in wait().
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "heddle/mesh/communicator.h"
#include "hostile.h"

namespace heddle::kits {

// Returns the data without autograd and without version counter, as a transport writes it.
inline at::Tensor bytes_of(const at::Tensor& tensor) {
  return tensor.variable_data();
}

// Return a copy of the tensor, or an uninitialized tensor of its shape. A tensor that violates the rules of
// the call is returned unchanged, so that the inner communicator reports it.
at::Tensor copy_of(const at::Tensor& tensor);
at::Tensor room_like(const at::Tensor& tensor);

// The tensors of one call: the caller's, and the copies that the inner communicator uses.
struct CallTensors {
  at::Tensor in, sent;    // undefined if there is no input, or if the output overlaps it
  at::Tensor out, late;   // undefined if there is no output
  bool in_place = false;  // `in` is a part of `out` that the call only reads
};

// The tag that a receive expects, and the transfer of the sender's tag.
struct Tag {
  std::unique_ptr<Work> work;  // null if no tag is transferred
  at::Tensor number;
  int expected = 0;
  bool receives = false;
};

class LateWork : public Work {
 public:
  // Poisons the output. call: "send on cp".
  LateWork(std::unique_ptr<Work> inner, CallTensors tensors, Tag tag, std::string call,
           std::shared_ptr<WorkFaults> faults);
  ~LateWork() override;
  void wait() override;
  bool done() const override { return inner_->done(); }

 private:
  void check_tag();
  void check_bytes();
  bool is_poisoned() const;

  std::unique_ptr<Work> inner_;
  CallTensors tensors_;
  Tag tag_;
  std::string call_;
  std::shared_ptr<WorkFaults> faults_;
  int exceptions_;
  bool waited_ = false;
};

}  // namespace heddle::kits

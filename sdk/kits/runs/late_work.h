// The Work of a strict communicator: it holds copies, and compares the caller's tensors in wait().
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "heddle/mesh/communicator.h"
#include "hostile.h"

namespace heddle::kits {

// The data without autograd and without its version counter, as a transport writes them.
inline at::Tensor bytes_of(const at::Tensor& tensor) {
  return tensor.variable_data();
}

// A copy, or room of the same shape. A tensor that the call's rules refuse is handed on as it is, so that
// they see it.
at::Tensor copy_of(const at::Tensor& tensor);
at::Tensor room_like(const at::Tensor& tensor);

// The tensors of one call: those of the caller, and those that the inner communicator moves.
struct CallTensors {
  at::Tensor in, sent;    // undefined: none, or one that the output overlaps
  at::Tensor out, late;   // undefined: none
  bool in_place = false;  // `in` is the part of `out` that the call reads and leaves as it is
};

// The number that a receive expects, beside what its sender gave.
struct Tag {
  std::unique_ptr<Work> work;  // null: no transfer
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

// A device reads an input and writes an output at any time between the call and wait(). Bytes that change in
// between are a fault, even if the CPU transport has already read them.
#include "late_work.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <utility>

#include "../watch.h"
#include "heddle/model/autograd_node.h"
#include "lib/testing/whole_tensors.h"

namespace heddle::kits {
namespace {

constexpr unsigned char kInteger = 0x81, kFloat = 0xFF;  // a large negative number; NaN

bool has_bytes(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() && tensor.is_contiguous();
}

// Returns whether the tensor can hold poison. A bool has only the bytes 0 and 1.
bool can_be_poisoned(const at::Tensor& tensor) {
  return has_bytes(tensor) && tensor.scalar_type() != at::kBool;
}

unsigned char poison_of(const at::Tensor& tensor) {
  return tensor.is_floating_point() ? kFloat : kInteger;
}

bool is_freed(const at::Tensor& tensor) {
  const size_t end = (static_cast<size_t>(tensor.storage_offset()) + static_cast<size_t>(tensor.numel())) *
                     tensor.element_size();
  return has_bytes(tensor) && tensor.numel() > 0 && tensor.storage().nbytes() < end;
}

void poison(const at::Tensor& out) {
  if (can_be_poisoned(out)) {
    if (out.nbytes() > 0) std::memset(bytes_of(out).mutable_data_ptr(), poison_of(out), out.nbytes());
  } else if (out.is_floating_point()) {
    bytes_of(out).fill_(std::numeric_limits<double>::quiet_NaN());
  }
}

}  // namespace

at::Tensor copy_of(const at::Tensor& tensor) {
  const model::BelowAutograd below;
  return tensor.defined() && tensor.is_contiguous() ? bytes_of(tensor).clone() : tensor;
}

at::Tensor room_like(const at::Tensor& tensor) {
  const model::BelowAutograd below;
  return tensor.defined() && tensor.is_contiguous() ? at::empty_like(bytes_of(tensor)) : tensor;
}

LateWork::LateWork(std::unique_ptr<Work> inner, CallTensors tensors, Tag tag, std::string call,
                   std::shared_ptr<WorkFaults> faults)
    : inner_(std::move(inner)),
      tensors_(std::move(tensors)),
      tag_(std::move(tag)),
      call_(std::move(call)),
      faults_(std::move(faults)),
      exceptions_(std::uncaught_exceptions()) {
  const model::BelowAutograd below;
  if (tensors_.out.defined()) poison(tensors_.out);
  if (tensors_.in_place) bytes_of(tensors_.in).copy_(tensors_.sent);
}

LateWork::~LateWork() {
  if (!waited_ && std::uncaught_exceptions() <= exceptions_)
    faults_->add("a Work of " + call_ + " was dropped without wait()");
}

void LateWork::wait() {
  if (std::exchange(waited_, true)) return faults_->add("wait() was called twice on a Work of " + call_);
  {
    const Watch::Waiting waiting;
    check_tag();
    inner_->wait();
  }
  const model::BelowAutograd below;
  check_bytes();
  if (tensors_.out.defined()) bytes_of(tensors_.out).copy_(tensors_.late);
}

void LateWork::check_tag() {
  if (!tag_.work) return;
  tag_.work->wait();
  const auto given = *tag_.number.const_data_ptr<int64_t>();
  if (tag_.receives && given != tag_.expected)
    found(call_ + " with tag " + std::to_string(tag_.expected) + " is matched with the send with tag " +
          std::to_string(given) +
          " (heddle/mesh/communicator.h: two ranks call their sends and receives in the same order)");
}

// Returns whether the output is still poisoned, except for an in-place part that the call does not modify.
bool LateWork::is_poisoned() const {
  const at::Tensor &out = tensors_.out, &in = tensors_.in;
  const auto* begin = static_cast<const unsigned char*>(out.const_data_ptr());
  const auto* end = begin + out.nbytes();
  const auto is_poison = [byte = poison_of(out)](auto at) { return at == byte; };
  if (!tensors_.in_place) return std::all_of(begin, end, is_poison);
  const auto* part = static_cast<const unsigned char*>(in.const_data_ptr());
  return std::all_of(begin, part, is_poison) && std::all_of(part + in.nbytes(), end, is_poison);
}

void LateWork::check_bytes() {
  for (const at::Tensor& tensor : {tensors_.in, tensors_.out})
    if (tensor.defined() && is_freed(tensor)) found("the memory of " + call_ + " was freed before wait()");
  if (can_be_poisoned(tensors_.out) && !is_poisoned())
    faults_->add("the output of " + call_ + " was written before wait()");
  const at::Tensor &in = tensors_.in, &sent = tensors_.sent;
  if (has_bytes(in) && in.nbytes() > 0 &&
      std::memcmp(in.const_data_ptr(), sent.const_data_ptr(), in.nbytes()) != 0)
    faults_->add("the input of " + call_ + " was written before wait()");
}

}  // namespace heddle::kits

// Operators of ATen on simulated GPUs: the CPU's kernels, on the same bytes, when the stream comes to them.
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/op_registration.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <torch/library.h>

#include <optional>
#include <set>

#include "heddle/base/error.h"
#include "lib/simulated/alias.h"

namespace heddle::simulated {
namespace {

using torch::jit::Stack;

// The host reads their results to know the shape, or returns a number.
const std::set<std::string> kReadByHost = {"aten::equal",    "aten::nonzero",  "aten::masked_select",
                                           "aten::_unique2", "aten::bincount", "aten::unique_consecutive"};

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool is_view(const c10::Argument& result) {
  return result.alias_info() != nullptr && !result.alias_info()->isWrite();
}

// LibTorch lets the arguments go before it returns references to them (out= of several tensors), so they are
// kept.
void call_below_all(const c10::OperatorHandle& op, Stack& stack) {
  const Stack kept = stack;
  const BelowAll below;
  op.callBoxed(&stack);
}

// One call: the arguments as they came, and what they are for kernels.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack* stack) : op_(op), schema_(op.schema()), stack_(stack) {
    const size_t count = schema_.arguments().size();
    const auto first = stack->end() - static_cast<std::ptrdiff_t>(count);
    given_.assign(first, stack->end());
    stack->erase(first, stack->end());
    for (size_t i = 0; i < count; ++i)
      visit(given_[i], [&](const at::Tensor& tensor) { note(tensor, is_written(schema_.arguments()[i])); });
    if (!device_) device_ = current_device();
  }

  void run() {
    const auto& returns = schema_.returns();
    if (!returns.empty() && is_view(returns[0])) return view();
    if (kReadByHost.contains(schema_.name())) return read_by_host();
    bool fresh = false;
    for (const c10::Argument& result : returns) fresh |= result.alias_info() == nullptr;
    fresh ? compute() : change();
  }

 private:
  void note(const at::Tensor& tensor, bool written) {
    if (!tensor.defined() || !tensor.is_cuda()) return;
    if (!device_) device_ = tensor.get_device();
    ranges_.push_back(range_of(tensor, written));
  }

  Stack aliases() const {
    Stack out = given_;
    for (c10::IValue& value : out)
      value = replaced(value, [](const at::Tensor& tensor) { return kernel_alias(tensor); });
    return out;
  }

  // Runs the kernel of meta; where there is none, the CPU's on zeros: no shape depends on values here.
  Stack shapes() const {
    const bool has_meta = op_.hasKernelForDispatchKey(c10::DispatchKey::Meta);
    const c10::Device device = has_meta ? at::kMeta : at::kCPU;
    Stack out = given_;
    for (c10::IValue& value : out)
      value = value.isDevice()
                  ? c10::IValue(device)
                  : replaced(value, [&](const at::Tensor& tensor) { return shape_alias(tensor, device); });
    call_below_all(op_, out);
    return out;
  }

  void launch(std::function<void()> run) const {
    Machine::get().launch(current_index(*device_), {schema_.name(), std::move(run), {}, nullptr}, ranges_);
  }

  // An empty out= gets its shape first.
  void make_room() {
    const auto is_empty = [&](size_t i) {
      return schema_.arguments()[i].is_out() && given_[i].isTensor() && given_[i].toTensor().numel() == 0;
    };
    bool any = false;
    for (size_t i = 0; i < given_.size(); ++i) any |= is_empty(i);
    if (!any) return;
    const Stack results = shapes();
    size_t next = 0;
    for (size_t i = 0; i < given_.size(); ++i) {
      if (!is_written(schema_.arguments()[i])) continue;
      const c10::IValue& result = results.at(next++);
      if (!is_empty(i)) continue;
      const at::Tensor& out = given_[i].toTensor();
      out.resize_(result.toTensor().sizes());
      note(out, true);
    }
  }

  // In place and with out=: the results are arguments.
  void change() {
    make_room();
    launch([op = op_, stack = aliases()]() mutable { call_below_all(op, stack); });
    size_t next = 0;
    std::vector<c10::IValue> written;
    for (size_t i = 0; i < given_.size(); ++i)
      if (is_written(schema_.arguments()[i])) written.push_back(given_[i]);
    for (size_t i = 0; i < schema_.returns().size(); ++i) stack_->push_back(written.at(next++));
  }

  // New tensors: their shapes now, their values when the stream comes to it.
  void compute() {
    Stack results = shapes();
    std::vector<at::Tensor> into;
    for (c10::IValue& value : results)
      value = replaced(value, [&](const at::Tensor& shape) {
        if (!shape.defined()) return shape;
        at::Tensor made = at::empty_strided(shape.sizes(), shape.strides(), options(shape.scalar_type()));
        ranges_.push_back(range_of(made, true));
        into.push_back(kernel_alias(made));
        return made;
      });
    launch([op = op_, stack = aliases(), into = std::move(into)]() mutable {
      call_below_all(op, stack);
      const BelowAll below;
      size_t next = 0;
      for (const c10::IValue& value : stack)
        visit(value, [&](const at::Tensor& tensor) {
          if (tensor.defined() && next < into.size()) into[next++].copy_(tensor);
        });
    });
    stack_->insert(stack_->end(), results.begin(), results.end());
  }

  void view() {
    Stack stack = aliases();
    call_below_all(op_, stack);
    const at::Tensor& base = given_[0].toTensor();
    for (c10::IValue& value : stack)
      stack_->push_back(replaced(value, [&](const at::Tensor& view) { return view_like(base, view); }));
  }

  void read_by_host() {
    launch({});
    Machine::get().synchronize(Machine::get().record(current_index(*device_)), schema_.name());
    Stack stack = aliases();
    call_below_all(op_, stack);
    for (c10::IValue& value : stack)
      stack_->push_back(replaced(value, [&](const at::Tensor& result) {
        at::Tensor made = at::empty_strided(result.sizes(), result.strides(), options(result.scalar_type()));
        kernel_alias(made).copy_(result);
        return made;
      }));
  }

  at::TensorOptions options(at::ScalarType type) const {
    return at::TensorOptions(type).device(at::kCUDA, static_cast<c10::DeviceIndex>(*device_));
  }

  const c10::OperatorHandle op_;
  const c10::FunctionSchema& schema_;
  Stack* const stack_;
  Stack given_;
  std::vector<Range> ranges_;
  std::optional<int> device_;
};

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  Call(op, stack).run();
}

}  // namespace
}  // namespace heddle::simulated

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&heddle::simulated::fallback>());
}

// Records operators by LibTorch's hook for profilers, and allocations by an allocator of meta tensors, which
// have no bytes.
#include <ATen/core/function_schema.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/ops/compute_log.h"

namespace heddle {

struct ComputeRecorder::State {
  ComputeLog log;
  int64_t moment = 0;
  at::CallbackHandle hook = 0;
  // Operators that are running, innermost last. Whether each has called another one that was recorded.
  std::vector<bool> has_inner;
  int within_one_launch = 0;  // operators over lists that are running: a device launches them whole

  void add(const char* name, const OperatorCost& cost, const std::optional<ProductShape>& product) {
    log.calls.push_back({name, cost, product, moment++});
    if (!has_inner.empty()) has_inner.back() = true;
  }
};

namespace {

thread_local std::shared_ptr<ComputeRecorder::State> recording;
thread_local bool paused = false;

// Null: nothing is recorded now.
ComputeRecorder::State* active() {
  return paused ? nullptr : recording.get();
}

struct Block {
  std::weak_ptr<ComputeRecorder::State> recorder;
  size_t place;
};

void release(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  if (const auto state = block->recorder.lock()) state->log.allocations[block->place].end = state->moment++;
}

// LibTorch's allocator of meta tensors, which returns null pointers, with a deleter if the thread records.
struct MetaAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (active() == nullptr || bytes == 0) return {nullptr, c10::Device(c10::kMeta)};
    recording->log.allocations.push_back({static_cast<int64_t>(bytes), recording->moment++});
    auto block = std::make_unique<Block>(Block{recording, recording->log.allocations.size() - 1});
    return {nullptr, block.release(), &release, c10::Device(c10::kMeta)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* /*to*/, const void* /*from*/, size_t /*bytes*/) const override {}
};

// Once in a process; it changes nothing for threads that record nothing.
void install_allocator() {
  static MetaAllocator allocator;
  static std::once_flag once;
  std::call_once(once, [] { c10::SetAllocator(c10::kMeta, &allocator, /*priority=*/1); });
}

struct ProductName {
  std::string_view name;
  size_t left;  // the place of the left factor among the inputs; the right one follows
};
constexpr std::array kProducts = {
    ProductName{"aten::mm", 0},     ProductName{"aten::addmm", 1},      ProductName{"aten::addmm_", 1},
    ProductName{"aten::bmm", 0},    ProductName{"aten::baddbmm", 1},    ProductName{"aten::baddbmm_", 1},
    ProductName{"aten::mv", 0},     ProductName{"aten::addmv", 1},      ProductName{"aten::_grouped_mm", 0},
    ProductName{"aten::dot", 0},    ProductName{"aten::_scaled_mm", 0}, ProductName{"aten::addmv_", 1},
    ProductName{"aten::_int_mm", 0}};

// A copy of a name that lives as long as the process.
const char* kept(std::string_view name) {
  static std::mutex access;
  static std::set<std::string, std::less<>> names;
  const std::lock_guard lock(access);
  const auto found = names.find(name);
  return (found != names.end() ? found : names.emplace(name).first)->c_str();
}

// 0: not on meta. What runs on the host beside a dry step is no part of it.
double elements_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_meta() ? static_cast<double>(tensor.numel()) : 0;
}

double elements_of(const c10::IValue& value) {
  return value.isTensor() ? elements_of(value.toTensor()) : 0;
}

double bytes_of(const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined())
    return elements_of(value) * static_cast<double>(value.toTensor().itemsize());
  double bytes = 0;
  if (value.isTensorList())
    for (const at::Tensor& tensor : value.toTensorVector()) bytes += bytes_of(tensor);
  return bytes;
}

// Returns the shape of a product of two factors on meta. The left factor may have any number of leading dims.
ProductShape shape_of(const at::Tensor& left, const at::Tensor& right) {
  ProductShape out;
  out.dtype = left.scalar_type();
  out.k = left.dim() > 0 ? left.size(-1) : 1;
  out.n = right.dim() > 1 ? right.size(-1) : 1;
  out.batch = right.dim() > 2 ? right.size(0) : 1;
  out.m = left.numel() / std::max<int64_t>(1, out.k * out.batch);
  return out;
}

struct Running final : at::ObserverContext {
  OperatorCost cost;
  std::optional<ProductShape> product;
  bool is_counted = true;
  bool is_one_launch = false;
};

bool is_over_lists(std::string_view name) {
  return name.starts_with("aten::_foreach_") || name.starts_with("aten::_fused_");
}

// Operators that compute nothing.
bool is_idle(std::string_view name) {
  constexpr std::array kIdle = {"aten::empty", "aten::new_empty",  "aten::resize_",
                                "aten::set_",  "aten::empty_like", "aten::empty_strided"};
  return std::any_of(kIdle.begin(), kIdle.end(), [&](const char* one) { return name == one; });
}

bool gives_views(const at::RecordFunction& call) {
  const auto schema = call.operator_schema();
  if (!schema || schema->returns().empty()) return false;
  const auto* alias = schema->returns()[0].alias_info();
  return alias != nullptr && !alias->isWrite();
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call) {
  auto running = std::make_unique<Running>();
  if (active() == nullptr) return running;
  if (recording->within_one_launch > 0) {
    running->is_counted = false;
    return running;
  }
  recording->has_inner.push_back(false);
  const std::string_view name = call.name();
  if (is_over_lists(name)) {
    running->is_one_launch = true;
    ++recording->within_one_launch;
  }
  running->is_counted = !is_idle(name) && !gives_views(call);
  if (!running->is_counted) return running;
  const auto inputs = call.inputs();
  OperatorCost& cost = running->cost;
  // copy_, fill_ and zero_ do not read the tensor that they overwrite.
  const bool overwrites = name == "aten::copy_" || name == "aten::fill_" || name == "aten::zero_" ||
                          name == "aten::_foreach_copy_" || name == "aten::_foreach_zero_";
  // Operators over lists that change them in place return nothing.
  if (running->is_one_launch && name.ends_with('_') && !inputs.empty()) cost.written += bytes_of(inputs[0]);
  for (size_t i = overwrites ? 1 : 0; i < inputs.size(); ++i) {
    cost.read += bytes_of(inputs[i]);
    cost.operations = std::max(cost.operations, elements_of(inputs[i]));
  }
  for (const ProductName& product : kProducts) {
    if (name != product.name || inputs.size() < product.left + 2) continue;
    const at::Tensor &left = inputs[product.left].toTensor(), &right = inputs[product.left + 1].toTensor();
    cost.operations = 2 * elements_of(left) * static_cast<double>(right.dim() > 1 ? right.size(-1) : 1);
    running->product = shape_of(left, right);
  }
  return running;
}

void end(const at::RecordFunction& call, at::ObserverContext* context) {
  if (active() == nullptr || recording->has_inner.empty()) return;
  auto* const running = static_cast<Running*>(context);
  if (running->is_one_launch)
    --recording->within_one_launch;
  else if (recording->within_one_launch > 0)
    return;
  const bool has_inner = recording->has_inner.back();
  recording->has_inner.pop_back();
  if (has_inner || !running->is_counted) {
    if (has_inner && !recording->has_inner.empty()) recording->has_inner.back() = true;
    return;
  }
  for (const c10::IValue& value : call.outputs()) {
    running->cost.written += bytes_of(value);
    if (!running->product) running->cost.operations = std::max(running->cost.operations, elements_of(value));
  }
  if (running->cost.written > 0 || running->cost.read > 0)
    recording->add(kept(call.name()), running->cost, running->product);
}

}  // namespace

ComputeRecorder::ComputeRecorder() : state_(std::make_shared<State>()) {
  if (recording != nullptr)
    throw Error(ErrorCode::internal, "compute recorder", "this thread records already",
                "end the first recorder before the next begins");
  install_allocator();
  state_->hook = at::addThreadLocalCallback(at::RecordFunctionCallback(begin, end)
                                                .needsInputs(true)
                                                .needsOutputs(true)
                                                .scopes({at::RecordScope::FUNCTION}));
  recording = state_;
}

ComputeRecorder::~ComputeRecorder() {
  at::removeCallback(state_->hook);
  recording.reset();
}

int64_t ComputeRecorder::moment() const {
  return state_->moment;
}

ComputeLog ComputeRecorder::log() const {
  return state_->log;
}

void record_operator(const char* name, const OperatorCost& cost, const std::optional<ProductShape>& product) {
  if (active() != nullptr) recording->add(name, cost, product);
}

int64_t record_moment() {
  return active() == nullptr ? -1 : recording->moment++;
}

bool records_operators() {
  return active() != nullptr;
}

ComputePause::ComputePause() : was_(std::exchange(paused, true)) {}

ComputePause::~ComputePause() {
  paused = was_;
}

}  // namespace heddle

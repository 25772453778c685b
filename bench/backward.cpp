// Costs of a split backward and of activation checkpointing: time, memory and what they compute
// twice, on one stack of layers.
//   bench_backward [rounds]
#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "core/parallel/recompute.h"
#include "heddle/nn/weight_gradients.h"
#include "tests/llama_model.h"

namespace {

using namespace heddle;

// Bytes on the CPU that this thread took and did not give back.
class Bytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
    now += size;
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t now = 0, peak = 0;
};

// Calls of operators on this thread, counted in a run of their own: counting takes time.
struct Calls {
  int products = 0, attention_cores = 0;
};
thread_local Calls calls;

std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& call) {
  const std::string_view name = call.name();
  if (name == "aten::mm" || name == "aten::addmm" || name == "aten::addmm_") ++calls.products;
  if (name == "aten::_scaled_dot_product_flash_attention_for_cpu") ++calls.attention_cores;
  return nullptr;
}

// One way to run forward and backward; all ways run in turn, so what else the machine does falls on all
// alike.
struct Contender {
  std::string label;
  bool split = false;
  ActivationCheckpointing mode = ActivationCheckpointing::none;
  Units units;
  std::vector<double> milliseconds;
  int64_t between = 0, peak = 0;  // bytes held between forward and backward, and at most
  Calls twice;                    // of the forward's operators, computed again in the backward
};

ModelConfig stack(int64_t width) {
  ModelConfig model;
  model.vocab_size = 256;
  model.hidden_size = width;
  model.intermediate_size = 3 * width;
  model.num_hidden_layers = 8;
  model.num_key_value_heads = model.num_attention_heads = 4;
  model.head_dim = width / 4;
  return model;
}

void prepare(Contender& one, int64_t width) {
  one.units = make_units(stack(width), at::kFloat);
  const Unit *first = one.units.front().get(), *last = one.units.back().get();
  parallel::recompute(one.units, first, last, one.mode);
  for (auto& unit : one.units)
    for (const ParameterSlot& slot : unit->parameters())
      slot.tensor->mutable_grad() = at::zeros(slot.tensor->sizes());
}

void run_once(Contender& one, Batch batch) {
  auto bytes = std::make_shared<Bytes>();
  const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, bytes);
  const std::clock_t start = std::clock();  // of this one thread, so that a busy machine disturbs less
  WeightGradients queue;
  batch.weight_gradients = &queue;
  Tensors flow;
  for (auto& unit : one.units) flow = unit->forward(std::move(flow), batch);
  one.between = bytes->now;
  if (one.split) queue.defer();
  torch::autograd::backward({std::move(flow[0])}, {});
  queue.drain();
  one.milliseconds.push_back(static_cast<double>(std::clock() - start) * 1e3 / CLOCKS_PER_SEC);
  one.peak = bytes->peak;
}

// A plain backward has products of its own, which are taken off.
void count_twice(Contender& one, Batch batch, Calls plain) {
  Tensors flow;
  for (auto& unit : one.units) flow = unit->forward(std::move(flow), batch);
  calls = {};
  const at::CallbackHandle counting = at::addThreadLocalCallback(at::RecordFunctionCallback(count));
  torch::autograd::backward({std::move(flow[0])}, {});
  at::removeCallback(counting);
  one.twice = {calls.products - plain.products, calls.attention_cores - plain.attention_cores};
}

void print(std::vector<Contender>& contenders, int64_t tokens, int64_t width) {
  std::printf("\n8 layers of width %lld, %lld tokens\n\n", static_cast<long long>(width),
              static_cast<long long>(tokens));
  std::printf(
      "| backward | least ms | median ms | median / whole | held MiB | peak MiB | products again | cores "
      "again "
      "|\n|---|--:|--:|--:|--:|--:|--:|--:|\n");
  double first = 0;
  for (Contender& one : contenders) {
    std::sort(one.milliseconds.begin(), one.milliseconds.end());
    const double median = one.milliseconds[one.milliseconds.size() / 2];
    if (first == 0) first = median;
    std::printf("| %s | %.2f | %.2f | %.2f | %.2f | %.2f | %d | %d |\n", one.label.c_str(),
                one.milliseconds.front(), median, median / first,
                static_cast<double>(one.between) / (1 << 20), static_cast<double>(one.peak) / (1 << 20),
                one.twice.products, one.twice.attention_cores);
  }
}

void compare(int64_t width, int64_t rows, int64_t length, int rounds) {
  using Mode = ActivationCheckpointing;
  std::vector<Contender> contenders;
  for (const auto& [label, mode] :
       {std::pair{"none", Mode::none}, {"selective", Mode::selective}, {"full", Mode::full}})
    for (const bool split : {false, true}) {
      contenders.emplace_back().label = (split ? "split, " : "whole, ") + std::string(label);
      contenders.back().split = split;
      contenders.back().mode = mode;
    }
  for (Contender& one : contenders) prepare(one, width);
  Batch batch;
  batch.tokens = at::randint(256, {rows, length}, at::kLong);
  batch.labels = at::randint(256, {rows, length}, at::kLong);
  for (int round = 0; round < rounds + 3; ++round) {
    if (round == 3)
      for (Contender& one : contenders) one.milliseconds.clear();
    for (Contender& one : contenders) run_once(one, batch);
  }
  count_twice(contenders[0], batch, {});
  const Calls plain = contenders[0].twice;
  for (Contender& one : contenders) count_twice(one, batch, plain);
  print(contenders, rows * length, width);
}

}  // namespace

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 50;
  at::set_num_threads(1);
  compare(32, 2, 16, rounds * 10);
  compare(128, 4, 64, rounds);
  return 0;
}

// Steps on a device whose tensors cannot be read: reading a tensor back or mixing it with CPU tensors throws.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/library.h>
#include <utility>

#include "heddle/mesh/dry.h"
#include "heddle/train/step.h"
#include "tests/plugins/topologies.h"

namespace heddle::tests {
namespace {

using OptionalTensor = const std::optional<at::Tensor>&;

// Requirements of a GPU kernel for its lists: one device, one dtype, and counters and divisor on the device.
// (Lists on the CPU use the CPU's kernel.)
void fused_adamw_of_a_device(at::TensorList weights, at::TensorList gradients, at::TensorList averages,
                             at::TensorList squares, at::TensorList, at::TensorList steps, double, double,
                             double, double, double, bool, bool, OptionalTensor divisor, OptionalTensor) {
  for (const at::TensorList list : {weights, gradients, averages, squares})
    for (const at::Tensor& tensor : list) {
      TORCH_CHECK(tensor.is_meta(), "a tensor is on ", tensor.device());
      TORCH_CHECK(tensor.scalar_type() == weights[0].scalar_type(), "two dtypes in one call");
    }
  for (const at::Tensor& step : steps) TORCH_CHECK(step.is_meta(), "a counter is on ", step.device());
  TORCH_CHECK(!divisor || divisor->is_meta(), "the divisor is not on the device");
}

thread_local int copied_to_host = 0;  // tensors of more than one element

// Copies from the device return ones.
at::Tensor& copy_of_a_device(at::Tensor& to, const at::Tensor&, bool) {
  if (to.is_meta()) return to;
  copied_to_host += to.numel() > 1;
  return to.fill_(1);
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("copy_", &copy_of_a_device);
  library.impl("_fused_adamw_", &fused_adamw_of_a_device);
}

// Checks the device of the tensors of every collective. Numbers of label tokens go over the host, and so do
// the order of ddp's buckets, once, and megatron's flags of gradients.
class CheckingCommunicator : public mesh::CheckedCommunicator {
 public:
  using CheckedCommunicator::CheckedCommunicator;
  int on_host = 0, on_device = 0;

 protected:
  std::unique_ptr<Work> post(mesh::Call call) override {
    const bool order = call.operation == mesh::Operation::broadcast && std::exchange(order_unknown_, false);
    const bool flags = call.operation == mesh::Operation::all_reduce && call.reduce == Reduce::max;
    if (call.operation == mesh::Operation::all_reduce && call.reduce == Reduce::sum && call.out.is_cpu() &&
        std::exchange(shards_unchecked_, false))
      return std::make_unique<mesh::DoneWork>();
    for (const at::Tensor& tensor : {call.out, call.in}) {
      if (!tensor.defined()) continue;
      if (tensor.is_meta())
        ++on_device;
      else if (order || flags ||
               (tensor.is_cpu() && tensor.numel() == 4 && tensor.scalar_type() == at::kDouble))
        ++on_host;
      else
        ADD_FAILURE() << call.describe() << " on " << tensor.device().str();
    }
    return std::make_unique<mesh::DoneWork>();
  }

 private:
  bool order_unknown_ = true;
  bool shards_unchecked_ = true;  // checks the owned shards once, while the model is built
};

// The first of `size` ranks, whose parameters are on the device.
class DeviceRendezvous : public DryRendezvous {
 public:
  using DryRendezvous::DryRendezvous;
  c10::Device device() const override { return at::kMeta; }
  std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) override {
    return std::make_unique<CheckingCommunicator>(name, 0, static_cast<int>(ranks.size()));
  }
};

Batch host_batch() {
  Batch batch;
  batch.tokens = at::arange(0, 8, at::kLong).view({1, 8});
  batch.labels = at::arange(1, 9, at::kLong).view({1, 8});
  return batch;
}

// Runs three steps with two microbatches each, and one without gradients. `tensor`: the fields of tensor
// parallelism; empty: none.
void train_on_device(const std::string& strategy, const std::string& section, std::vector<Axis> axes,
                     int ranks, at::ScalarType dtype, const std::string& tensor = "") {
  SCOPED_TRACE(strategy + " " + section + " " + tensor);
  DeviceRendezvous rendezvous(0, ranks);
  const DeviceMesh mesh = mesh::build(axes, rendezvous, "");
  EXPECT_EQ(mesh.device(), c10::Device(at::kMeta));
  Plan plan;
  plan.strategy = make_strategy(strategy, section);
  if (!tensor.empty()) plan.parallelizers.push_back(make_parallelizer("tensor", tensor));
  const auto options = at::TensorOptions().device(at::kMeta).dtype(dtype);
  const ModelConfig model = tensor.empty() ? odd_llama() : four_heads().model;
  Stages stages = parallel::build(make_units(model, options), plan, mesh, {}, 1);
  const bool offloads = section.find("offload_policy") != std::string::npos;
  for (const Shard* shard : stages.shards()) EXPECT_EQ(shard->tensor.is_cpu(), offloads) << shard->name;
  StepConfig config;
  config.master_weights = true;
  config.groups = {{"norm", 1.0, 0.0}};
  Step step(stages, mesh, config);
  const std::vector<Batch> batches = {host_batch(), host_batch()};
  for (int i = 0; i < 3; ++i) {
    const StepReport report = step.run(batches, 1e-3, 0.1);
    EXPECT_TRUE(report.loss.is_meta());
    EXPECT_TRUE(report.grad_norm.is_meta());
    EXPECT_EQ(report.label_tokens, 16);
  }
  EXPECT_TRUE(step.evaluate(batches).loss.is_meta());
}

TEST(Device, StepOfSingleReadsNothingBack) {
  train_on_device("single", "{}", {{"pp", 1}, {"tp", 1}}, 1, at::kFloat);
  train_on_device("single", "{}", {{"pp", 1}, {"tp", 1}}, 1, at::kBFloat16);
}

TEST(Device, StepOfDdpReadsNothingBack) {
  train_on_device("ddp", "{}", {{"dp", 1}}, 1, at::kFloat);
  train_on_device("ddp", "{}", {{"dp", 3}}, 3, at::kFloat);
  train_on_device("ddp", "{gradient_as_bucket_view: true}", {{"dp", 3}}, 3, at::kBFloat16);
}

TEST(Device, StepOfFsdp2ReadsNothingBack) {
  const auto axes = [](int replicate, int shard) {
    return std::vector<Axis>{
        {"pp", 1}, {"dp_replicate", replicate}, {"dp_shard", shard}, {"cp", 1}, {"tp", 1}};
  };
  const std::string fp32 = "{mp_policy: {param_dtype: float32, reduce_dtype: float32}}";
  train_on_device("fsdp2", "{}", axes(1, 1), 1, at::kFloat);
  train_on_device("fsdp2", fp32, axes(1, 3), 3, at::kFloat);
  train_on_device("fsdp2", "{}", axes(2, 2), 4, at::kFloat);
  train_on_device("fsdp2", "{reshard_after_forward: false}", axes(1, 2), 2, at::kFloat);
}

TEST(Device, StepOfMegatronStrategiesReadsNothingBack) {
  for (const char* split : {"{zero_dp_strategy: 0}", "{zero_dp_strategy: 1}", "{zero_dp_strategy: 2}",
                            "{zero_dp_strategy: 3}", "{zero_dp_strategy: 3, fsdp_double_buffer: true}"})
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16})
      train_on_device("megatron_fsdp", split, {{"dp", 3}, {"cp", 1}, {"tp", 1}}, 3, dtype);
  for (const char* section : {"{}", "{use_distributed_optimizer: true, overlap_grad_reduce: true}"})
    train_on_device("megatron", section,
                    {{"pp", 1}, {"dp_replicate", 1}, {"dp_shard", 3}, {"cp", 1}, {"tp", 1}}, 3, at::kFloat);
}

TEST(Device, StepOfTensorParallelLayersReadsNothingBack) {
  for (const char* tensor :
       {"{}", "{sequence_parallel: true}", "{sequence_parallel: true, enable_async_tensor_parallel: true}"})
    train_on_device("ddp", "{}", {{"dp", 2}, {"tp", 2}}, 4, at::kFloat, tensor);
}

// Shards, gradients and the optimizer are on the host. Sums over ranks and the norm stay on the device.
TEST(Device, OffloadedStepCopiesEachGroupOnceAndUpdatesOnTheHost) {
  for (const auto& [replicate, shard] : {std::pair{1, 1}, std::pair{1, 3}, std::pair{2, 2}})
    for (const char* policy : {"{param_dtype: float32, reduce_dtype: float32}",
                               "{param_dtype: bfloat16, reduce_dtype: float32}"}) {
      copied_to_host = 0;
      train_on_device("fsdp2",
                      std::string("{offload_policy: {pin_memory: false}, mp_policy: ") + policy + "}",
                      {{"pp", 1}, {"dp_replicate", replicate}, {"dp_shard", shard}, {"cp", 1}, {"tp", 1}},
                      replicate * shard, at::kFloat);
      EXPECT_EQ(copied_to_host, 3 * 5);  // steps, and units of the model
    }
}

}  // namespace
}  // namespace heddle::tests

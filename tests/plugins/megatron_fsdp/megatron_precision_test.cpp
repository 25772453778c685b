// Compute and reduction dtypes of Megatron's ranks, and their memory.
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include "heddle/train/step.h"
#include "plugins/megatron_runs.h"

namespace heddle::tests {
namespace {

// Counts the CPU bytes that this thread allocated and did not free.
class Allocated : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override { now += size; }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t now = 0;
};

ModelConfig even_llama() {
  ModelConfig model;
  model.vocab_size = 512;
  model.hidden_size = 64;
  model.intermediate_size = 192;
  model.num_hidden_layers = 4;
  model.num_key_value_heads = model.num_attention_heads = 4;
  model.head_dim = 16;
  return model;
}

// Returns the bytes that the first rank holds between two steps.
int64_t measured(const Training& run, at::ScalarType dtype) {
  int64_t out = 0;
  int size = 1;
  for (const Axis& axis : run.axes) size *= axis.size;
  ThreadWorld::run(size, [&](Rendezvous& rendezvous) {
    const DeviceMesh mesh = mesh::build(run.axes, rendezvous, "test: world");
    Batch batch;
    batch.tokens = batch.labels = at::full({2, 8}, 4, at::kLong);
    const auto allocated = std::make_shared<Allocated>();
    const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, allocated);
    Plan plan;
    plan.strategy = make_strategy(run.strategy, run.section);
    Stages stages = parallel::build(make_units(run.model, at::TensorOptions().dtype(dtype).device(at::kMeta)),
                                    plan, mesh, {}, 7);
    Step step(stages, mesh, StepConfig{});
    for (int i = 0; i < 2; ++i) step.run(std::span(&batch, 1), 1e-3, 0);
    mesh.rendezvous().barrier(
        "measured");  // no rank reuses memory that another rank freed during the measurement
    if (mesh.rank("world") == 0) out = allocated->now;
  });
  return out;
}

struct Bytes {
  double parameters, main, gradients;  // bytes per element; main: 0 if the parameters are the main parameters
  double state() const { return 2 * (main > 0 ? main : parameters); }
};

// Megatron's formula with d ranks: state that strategy n splits is divided by d, and other state is whole on
// each.
double predicted(double elements, int strategy, int d, const Bytes& bytes) {
  const double by_one = 1.0 / (strategy >= 1 ? d : 1), by_two = 1.0 / (strategy >= 2 ? d : 1),
               by_three = 1.0 / (strategy >= 3 ? d : 1);
  const double kept = strategy >= 3 && bytes.main > 0 ? 0 : bytes.parameters;
  return elements * (kept * by_three + (bytes.main + bytes.state()) * by_one + bytes.gradients * by_two);
}

TEST(MegatronFsdp, UsesTheMemoryOfTheFormula) {
  const ModelConfig model = even_llama();
  const double elements = 2 * 512 * 64 + 4 * (4 * 64 * 64 + 3 * 64 * 192 + 2 * 64) + 64;
  for (const int ranks : {2, 4})
    for (const bool mixed : {false, true}) {
      double before = 1e30;
      for (int strategy = 0; strategy <= 3; ++strategy) {
        Training run = mfsdp(
            ranks, zero(strategy, mixed ? "preserve_fp32_weights: true\ngrad_reduce_in_fp32: true" : ""));
        run.model = model;
        const Bytes bytes = mixed ? Bytes{2, 4, 4} : Bytes{4, 0, 4};
        const double want = predicted(elements, strategy, ranks, bytes);
        const auto got = static_cast<double>(measured(run, mixed ? at::kBFloat16 : at::kFloat));
        std::printf("| %d | %s | %d | %.0f | %.0f | %.2f %% |\n", ranks, mixed ? "bfloat16" : "float32",
                    strategy, got, want, 100 * (got / want - 1));
        EXPECT_NEAR(got / want, 1, 0.02) << ranks << " ranks, strategy " << strategy;
        EXPECT_LT(got, before);
        before = got;
      }
    }
}

// bfloat16 parameters with float32 main parameters equal fsdp2's float32 parameters with bfloat16 compute.
TEST(MegatronFsdp, KeepsMainParametersAndSumsInFloat32IfConfigured) {
  const Outcome want =
      train(toy("fsdp2", shards(1), "mp_policy: {param_dtype: bfloat16, reduce_dtype: float32}"));
  Toy low{.dtype = at::kBFloat16};
  const std::string words = "preserve_fp32_weights: true\ngrad_reduce_in_fp32: true";
  for (int strategy = 0; strategy <= 3; ++strategy) {
    SCOPED_TRACE(strategy);
    expect_bit_equal(train(toy_like(mfsdp(1, zero(strategy, words)), low)), want);
    const Outcome two =
        train(toy("fsdp2", shards(2), "mp_policy: {param_dtype: bfloat16, reduce_dtype: float32}"));
    expect_close(train(toy_like(mfsdp(2, zero(strategy, words)), low)), two);
  }
  expect_bit_equal(train(toy_like(megatron(1, kFlat + "grad_reduce_in_fp32: true"), low)), want);
  EXPECT_NE(train(toy_like(mfsdp(1, zero(3)), low)).losses, want.losses);
}

at::ScalarType dtype_of_gradients(const Training& run) {
  at::ScalarType dtype{};
  on_ranks(run, [&](Stages& stages, const DeviceMesh&) {
    toy_step(stages);
    dtype = stages.shards()[0]->tensor.grad().scalar_type();
  });
  return dtype;
}

TEST(Megatron, UsesTheConfiguredDtypesOfMainParametersAndGradients) {
  Toy low{.dtype = at::kBFloat16};
  const auto dtype = [&](const std::string& more) {
    return dtype_of_gradients(toy_like(megatron(1, fsdp("optim", more)), low));
  };
  EXPECT_EQ(dtype(""), at::kFloat);  // cast to the dtype of the main parameters
  EXPECT_EQ(dtype("megatron_fsdp_use_decoupled_grad: true"), at::kBFloat16);
  EXPECT_EQ(dtype("megatron_fsdp_main_params_dtype: null"), at::kBFloat16);
  EXPECT_EQ(dtype("megatron_fsdp_use_decoupled_grad: true\nmegatron_fsdp_main_grads_dtype: float32"),
            at::kFloat);
}

std::map<std::string, at::Tensor> low_gradients(const std::string& section, int ranks, int microbatches) {
  Toy low{.dtype = at::kBFloat16};
  Training run = toy_like(megatron(ranks, section), low);
  run.microbatches = microbatches;
  return gradients(run);
}

bool equal(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  for (const auto& [name, tensor] : a)
    if (!at::equal(tensor, b.at(name))) return false;
  return a.size() == b.size();
}

TEST(Megatron, SumsBfloat16InFloat32AndRoundsOnce) {
  const std::string more = kFlat + "calculate_per_token_loss: true\n";
  EXPECT_TRUE(equal(low_gradients(more + "reduce_scatter_with_fp32_accumulation: true", 4, 1),
                    low_gradients(more, 4, 1)));
}

// A division by a power of two before the sum loses no bit.
TEST(Megatron, DividesBeforeOrInTheCollectiveToTheSameBitsForPowersOfTwo) {
  for (const int ranks : {2, 4})
    EXPECT_TRUE(equal(low_gradients(kFlat + "average_in_collective: true", ranks, 1),
                      low_gradients(kFlat + "gradient_reduce_div_fusion: false", ranks, 1)));
}

TEST(Megatron, AccumulatesMatchingParametersInFloat32) {
  const auto apart = [](const std::map<std::string, at::Tensor>& got,
                        const std::map<std::string, at::Tensor>& want,
                        const std::string& name) { return !at::equal(got.at(name), want.at(name)); };
  const auto low = low_gradients(kFlat, 1, 4),
             full = low_gradients(kFlat + "grad_reduce_in_fp32: true", 1, 4);
  const std::string patterns = "param_name_patterns_for_fp32_local_accumulation: ";
  const auto some = low_gradients(kFlat + patterns + "['*.weight']", 1, 4);
  EXPECT_TRUE(apart(low, full, "layer1.weight"));
  EXPECT_TRUE(apart(some, low, "layer1.weight"));
  EXPECT_FALSE(apart(some, low, "layer1.bias"));
  const auto biases = low_gradients(kFlat + patterns + "['layer?.[!w]*']", 1, 4);
  EXPECT_FALSE(apart(biases, low, "layer1.weight"));
  EXPECT_TRUE(apart(biases, low, "layer1.bias"));
  const auto all = low_gradients(kFlat + patterns + "[all]", 1, 4);
  EXPECT_TRUE(apart(all, low, "layer1.bias"));
  for (const auto& [name, tensor] : all)
    EXPECT_TRUE(at::equal(tensor, full.at(name).to(at::kBFloat16).to(at::kFloat))) << name;
}

}  // namespace
}  // namespace heddle::tests

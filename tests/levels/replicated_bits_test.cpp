// Replicated computations give equal bits on every instruction set.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "core/base/cpu_settings.h"
#include "core/mesh/sums.h"
#include "heddle/nn/rms_norm.h"
#include "heddle/plugin/optimizer.h"
#include "heddle/train/replicated.h"
#include "lib/checkpoint/safetensors/checksum.h"
#include "lib/train/optimizer/norm.h"
#include "plugins/training_world.h"
#include "train/alone.h"

namespace heddle::tests {
namespace {

class Digest {
 public:
  void add(const at::Tensor& tensor) {
    const at::Tensor all = tensor.detach().contiguous();
    sum_.add({static_cast<const char*>(all.const_data_ptr()), static_cast<size_t>(all.nbytes())});
  }
  std::string digits() const { return sum_.digits(); }

 private:
  checkpoint::Checksum sum_;
};

// Returns numbers that products and sums round, more than a block, not a multiple of the vector width.
at::Tensor some(std::vector<int64_t> sizes, at::ScalarType dtype) {
  return at::randn(sizes, at::kDouble).to(dtype);
}

void add_updates(Digest& digest, const std::string& name, at::ScalarType dtype) {
  std::vector<Shard> shards = {parameter("layer.weight", some({77, 61}, dtype)),
                               parameter("turned.weight", some({19, 23}, dtype).t()),
                               parameter("layer.bias", some({37}, dtype))};
  for (Shard& shard : shards) shard.offset.assign(shard.shape.size(), 0);
  AloneRendezvous rendezvous;
  const DeviceMesh mesh = mesh::build({}, rendezvous, "");
  const auto optimizer = make_offered<OfferedOptimizer>("optimizer", name, "{}");
  train::Updater updater(all(shards), mesh, {}, *optimizer);
  for (int step = 0; step < 3; ++step) {
    for (Shard& shard : shards) shard.tensor.mutable_grad() = some(shard.shape, dtype);
    for (const double type : {2.0, 3.0, static_cast<double>(INFINITY)}) {
      const at::Tensor norm = train::GradientNorm(all(shards), mesh, type).measure(nullptr);
      digest.add(norm);
      digest.add(train::clip_divisor(norm, 1.0));
    }
    updater.update({0.01, 0.1, at::full({1}, 1.7f), {}});
    for (const Shard& shard : shards) digest.add(shard.tensor);
  }
}

void add_layers(Digest& digest) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor x = some({9, 45}, dtype).requires_grad_(), weight = some({45}, dtype).requires_grad_();
    const at::Tensor y = model::rms_norm(x, weight, 1e-5);
    y.backward(some({9, 45}, dtype));
    for (const at::Tensor& tensor : {y, x.grad(), weight.grad()}) digest.add(tensor);
    digest.add(train::replicated_product(some({23, 91}, dtype), some({37, 91}, dtype).t()));
    const std::array<at::Tensor, 3> parts{some({700}, dtype), some({700}, dtype), some({700}, dtype)};
    const std::array<const void*, 3> pointers{parts[0].const_data_ptr(), parts[1].const_data_ptr(),
                                              parts[2].const_data_ptr()};
    const at::Tensor mean = at::zeros({700}, dtype);
    mesh::combine(mean.mutable_data_ptr(), pointers, 700, dtype, Reduce::average);
    digest.add(mean);
  }
}

// Runs in a child process of the test below.
TEST(ReplicatedWork, DISABLED_PrintsItsBits) {
  at::manual_seed(9);
  Digest digest;
  for (const char* const name : {"AdamW", "Adam", "Muon"})
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16})
      add_updates(digest, name, dtype);
  add_layers(digest);
  std::printf("bits %s\n", digest.digits().c_str());
}

std::string bits_with(const std::string& environment) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = environment + " '" + program + "'" +
                              " --gtest_also_run_disabled_tests "
                              "--gtest_filter=ReplicatedWork.DISABLED_PrintsItsBits 2>&1";
  const std::unique_ptr<FILE, int (*)(FILE*)> output(::popen(command.c_str(), "r"), ::pclose);
  std::string text;
  std::array<char, 4096> part{};
  while (const size_t count = std::fread(part.data(), 1, part.size(), output.get()))
    text.append(part.data(), count);
  const size_t from = text.find("bits ");
  return from == std::string::npos ? "no bits: " + text : text.substr(from, text.find('\n', from) - from);
}

// LibTorch's lowest instruction set replaces those that this processor lacks.
TEST(ReplicatedWork, HasTheSameBitsWithEveryInstructionSet) {
  const std::string want = bits_with("OMP_NUM_THREADS=1");
  EXPECT_TRUE(want.starts_with("bits ")) << want;
  std::vector<std::string> environments = {"OMP_NUM_THREADS=2",       "MKL_ENABLE_INSTRUCTIONS=SSE4_2",
                                           "DNNL_MAX_CPU_ISA=SSE41",  "ATEN_CPU_CAPABILITY=default",
                                           "HEDDLE_PACKED_PRODUCT=1", "HEDDLE_PACKED_PRODUCT=0"};
  for (const char* const name : {"default", "avx2", "avx512"})
    if (parse_cpu_capability(name, CpuCapability::avx512) <= processor_capability())
      environments.push_back("HEDDLE_CPU_CAPABILITY=" + std::string(name));
  for (const std::string& environment : environments) EXPECT_EQ(bits_with(environment), want) << environment;
}

}  // namespace
}  // namespace heddle::tests

// Predicted times of operators and collectives against published measurements.
#include "lib/cost/time/operator_time.h"

#include <gtest/gtest.h>

#include <vector>

#include "lib/cost/time/collective_time.h"

namespace heddle {
namespace {

OperatorCall product(int64_t m, int64_t n, int64_t k, c10::ScalarType dtype = c10::kBFloat16) {
  OperatorCall call;
  call.name = "aten::mm";
  call.product = ProductShape{1, m, n, k, dtype};
  call.cost.operations = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  call.cost.read = 2.0 * static_cast<double>(m * k + k * n);
  call.cost.written = 2.0 * static_cast<double>(m * n);
  return call;
}

// Measured efficiencies of SimuMax's configs/system/a100_pcie.json, relative to 312 TFLOP/s.
TEST(OperatorTime, AgreesWithMeasuredProductsOnAnA100) {
  struct Measured {
    int64_t m, n, k;
    double share;
  };
  const MachineFile a100 = machine_named("A100", "--device");
  for (const Measured& one : std::vector<Measured>{{4096, 57344, 8192, 0.753},
                                                   {4096, 8192, 8192, 0.733},
                                                   {4096, 4096, 4096, 0.721},
                                                   {4096, 5120, 16384, 0.749},
                                                   {4096, 32768, 512, 0.618},
                                                   {4096, 4096, 2048, 0.682},
                                                   {4096, 8192, 1024, 0.602}}) {
    const OperatorCall call = product(one.m, one.n, one.k);
    const double measured = call.cost.operations / (one.share * 312e12);
    EXPECT_NEAR(operator_seconds(call, a100) / measured, 1, 0.12) << one.m << "x" << one.n << "x" << one.k;
  }
}

TEST(OperatorTime, CountsWholeTilesOfSmallProducts) {
  const MachineFile h100 = machine_named("H100", "--device");
  // A fifth of the rows still fills a wave of tiles.
  EXPECT_GT(operator_seconds(product(64, 4096, 4096), h100),
            operator_seconds(product(640, 4096, 4096), h100) / 5);
  EXPECT_GT(operator_seconds(product(4096, 4096, 4096, c10::kFloat), h100),
            5 * operator_seconds(product(4096, 4096, 4096), h100));
}

TEST(OperatorTime, FollowsTheBytesOfOtherOperators) {
  MachineFile machine;
  machine.memory_bandwidth = 1e12;
  machine.memory_efficiency = 0.5;
  OperatorCall call;
  call.name = "aten::add";
  call.cost = {1e6, 4e9, 1e9};
  EXPECT_DOUBLE_EQ(operator_seconds(call, machine), 0.01);
}

double seconds_of(mesh::Operation operation, int64_t bytes, std::vector<int> ranks,
                  const MachineFile& machine) {
  const GroupPlace place = group_place(ranks, machine);
  return collective_seconds({operation, bytes, "dp", place.ranks}, place, machine);
}

std::vector<int> ranks_of(int count, int stride = 1) {
  std::vector<int> out;
  for (int i = 0; i < count; ++i) out.push_back(i * stride);
  return out;
}

// vTrain's trace/a100/AR_GPU8: measured all-reduces on 8 GPUs.
TEST(CollectiveTime, AgreesWithMeasuredAllReducesOnAnA100) {
  const MachineFile a100 = machine_named("A100", "--device");
  EXPECT_NEAR(seconds_of(mesh::Operation::all_reduce, 1073741824, ranks_of(8), a100), 8.19e-3, 0.3e-3);
  EXPECT_NEAR(seconds_of(mesh::Operation::all_reduce, 16777216, ranks_of(8), a100), 0.232e-3, 0.08e-3);
}

TEST(CollectiveTime, IsThatOfTheNetworkWhereNodesAreCrossed) {
  const MachineFile h100 = machine_named("H100", "--device");
  const double within = seconds_of(mesh::Operation::all_gather, 1 << 30, ranks_of(8), h100);
  // One rank per node uses one device's network bandwidth; eight ranks per node use all eight.
  const double thin = seconds_of(mesh::Operation::all_gather, 1 << 30, ranks_of(8, 8), h100);
  const double wide = seconds_of(mesh::Operation::all_gather, 1 << 30, ranks_of(64), h100);
  EXPECT_NEAR(thin / within, h100.node_bandwidth / h100.network_bandwidth, 0.5);
  EXPECT_LT(wide, 1.5 * within);
  EXPECT_GT(wide, within);
}

TEST(CollectiveTime, IsTheLatencyOfSmallCollectives) {
  const MachineFile h100 = machine_named("H100", "--device");
  EXPECT_LT(seconds_of(mesh::Operation::all_reduce, 8, ranks_of(8), h100), 30e-6);
  EXPECT_GT(seconds_of(mesh::Operation::all_reduce, 8, ranks_of(512), h100),
            2 * seconds_of(mesh::Operation::all_reduce, 8, ranks_of(8), h100));
}

}  // namespace
}  // namespace heddle

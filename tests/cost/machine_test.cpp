// Machine files: every file parses, names its sources, and is found by its device's name.
#include "lib/cost/machine.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "heddle/base/error.h"
#include "heddle/mesh/call.h"
#include "lib/cost/measure.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;

const fs::path kMachines = HEDDLE_SOURCE_DIR "/lib/cost/machines";

std::string error_of(const std::string& yaml) {
  const fs::path file = fs::path(::testing::TempDir()) / "heddle_machine.yaml";
  std::ofstream(file) << yaml;
  try {
    read_machine(file);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(MachineFile, IsReadForEveryDevice) {
  for (const std::string& name : machine_names()) {
    const MachineFile machine = machine_named(name, "--device");
    EXPECT_EQ(machine.name, name);
    EXPECT_GT(machine.peak_16, 0) << name;
  }
  for (const char* name :
       {"A100", "H100", "H200", "B200", "B300", "GB200", "GB300", "L40S", "RTX-4090", "RTX-A6000", "cpu"}) {
    EXPECT_THAT(machine_names(), Contains(name));
    EXPECT_GT(machine_named(name, "--device").node_bandwidth, 0) << name;
  }
}

TEST(MachineFile, NamesTheSourceOfEachFigure) {
  for (const auto& entry : fs::directory_iterator(kMachines)) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) EXPECT_THAT(line, HasSubstr("# ")) << entry.path();
  }
}

TEST(MachineFile, IsFoundByTheLongestNameInADevicesOwn) {
  EXPECT_EQ(machine_of("NVIDIA GB200")->name, "GB200");
  EXPECT_EQ(machine_of("NVIDIA L40S")->name, "L40S");
  EXPECT_EQ(machine_of("NVIDIA H200")->name, "H200");
  EXPECT_EQ(machine_of("NVIDIA RTX A4000"), nullptr);
}

TEST(MachineFile, IsNamedInAnyCaseWithOrWithoutHyphens) {
  EXPECT_EQ(machine_named("rtx a6000", "--device").name, "RTX-A6000");
  EXPECT_THROW(machine_named("H1000", "--device"), Error);
}

TEST(MachineFile, RefusesWrongKeysAndValues) {
  EXPECT_THAT(error_of("peak_61: 1e12\n"), HasSubstr("peak_61"));
  EXPECT_THAT(error_of("efficiency_16: 2\n"), HasSubstr("efficiency_16"));
}

TEST(MachineFile, HasNodesThatDivideTheRanksEvenly) {
  const MachineFile gb200 = machine_named("GB200", "--device");
  EXPECT_EQ(with_even_nodes(gb200, 256).node_devices, 64);
  EXPECT_EQ(with_even_nodes(gb200, 8).node_devices, 8);
  EXPECT_EQ(with_even_nodes(machine_named("H100", "--device"), 64).node_devices, 8);
}

TEST(MeasureMachine, GivesFiguresThatAMachineFileHolds) {
  AloneRendezvous alone;
  const MachineFile measured = measure_machine(alone, nullptr);
  EXPECT_EQ(measured.device, "cpu");
  EXPECT_GT(measured.peak_32, 1e9);
  EXPECT_GT(measured.memory_bandwidth, 1e8);
  EXPECT_GT(measured.kernel_seconds, 0);
  EXPECT_LT(measured.kernel_seconds, 1e-3);
  EXPECT_EQ(measured.launch_seconds, 0);  // the CPU is its own host
  const fs::path file = fs::temp_directory_path() / ("measured" + std::to_string(::getpid()) + ".yaml");
  std::ofstream(file) << to_yaml(measured, "this machine");
  const MachineFile read = read_machine(file);
  fs::remove(file);
  EXPECT_NEAR(read.peak_32 / measured.peak_32, 1, 1e-3);
  EXPECT_NEAR(read.attention_backward / measured.attention_backward, 1, 1e-3);
  EXPECT_EQ(read.node_devices, 1);
  EXPECT_EQ(read.multiprocessors, measured.multiprocessors);
}

}  // namespace
}  // namespace heddle

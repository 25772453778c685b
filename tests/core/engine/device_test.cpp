// Device of a run: the value of dist_env.backend, the available devices, and messages about missing ones.
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "heddle/mesh/call.h"
#include "lib/testing/small_model.h"
#include "tests/core/plugin/gallery.h"
#include "tests/thrown.h"

namespace heddle::tests {

using namespace kits;
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Node run_yaml(const std::string& backend) {
  return config::read_text("distributed: {strategy: single}\ndist_env: {backend: " + backend + "}\n",
                           "run.yaml");
}

engine::Model model_on(const std::string& backend, PluginRegistry& plugins, Rendezvous& rendezvous,
                       const std::function<Units(const Setup&)>& units) {
  return engine::model(run_yaml(backend), plugins, {rendezvous, units, {}, 42, ""});
}

Units small(const Setup&) {
  return kits::small_model({});
}

TEST(Backend, UsesTheFirstAvailableDeviceForNull) {
  const gallery::Place place({"devices"});
  PluginRegistry plugins({place.path()});
  AloneRendezvous rendezvous;
  engine::Model model = model_on("null", plugins, rendezvous, small);
  EXPECT_EQ(model.mesh.device(), c10::Device(at::kMeta));
  EXPECT_TRUE(model.stages.front()->owned()[0].tensor.is_meta());
  EXPECT_EQ(model.device->memory().peak, 2);
  const engine::Model same = model_on("SHEET", plugins, rendezvous, small);
  EXPECT_EQ(same.mesh.device(), c10::Device(at::kMeta));
}

TEST(Backend, UsesTheCpuForGloo) {
  const gallery::Place place({"devices"});
  PluginRegistry plugins({place.path()});
  AloneRendezvous rendezvous;
  engine::Model model = model_on("gloo", plugins, rendezvous, small);
  EXPECT_EQ(model.device, nullptr);
  EXPECT_EQ(model.mesh.device(), c10::Device(at::kCPU));
  EXPECT_TRUE(model.stages.front()->owned()[0].tensor.is_cpu());
}

TEST(Backend, UsesTheCpuForNullWithoutADevice) {
  PluginRegistry plugins({});
  EXPECT_EQ(engine::choose_device(engine::validate(run_yaml("null"), plugins, 1), plugins), nullptr);
}

TEST(Backend, ReportsWhatIsMissing) {
  const gallery::Place place({"devices"});
  PluginRegistry plugins({place.path()});
  const auto refusal = [&](const std::string& backend, PluginRegistry& from) {
    return thrown_by([&] { engine::choose(engine::validate(run_yaml(backend), from, 1), from); });
  };
  EXPECT_EQ(
      refusal("ghost", plugins),
      "error[config] run.yaml:2 dist_env.backend: backend 'ghost' is not available: this machine has none\n"
      "  hint: write gloo, or null, to train on the CPU");
  PluginRegistry none({});
  EXPECT_EQ(
      refusal("nccl", none),
      "error[plugin_missing] run.yaml:2 dist_env.backend: there is no device 'nccl'; available: none "
      "(searched no directory)\n"
      "  hint: build heddle where that device's toolkit is; or write gloo, or null, to train on the CPU");
  EXPECT_EQ(refusal("tpu", plugins),
            "error[config] run.yaml:2 dist_env.backend: expected one of gloo, nccl, ghost, paper, sheet, got "
            "'tpu'");
}

TEST(Backend, NamesThePluginWhenItsDeviceThrows) {
  const gallery::Place place({"devices"});
  PluginRegistry plugins({place.path()});
  struct SecondOfItsMachine : AloneRendezvous {
    int local_rank() const override { return 1; }
  } rendezvous;
  const Error error = gallery::error_of([&] { model_on("paper", plugins, rendezvous, small); });
  EXPECT_EQ(error.code(), ErrorCode::plugin_failed);
  EXPECT_THAT(error.message(),
              HasSubstr("the plugin 'devices' 0.1.0 threw while it started its device: there is one sheet"));
}

TEST(Backend, RefusesAModelOnAnotherDevice) {
  const gallery::Place place({"devices"});
  PluginRegistry plugins({place.path()});
  AloneRendezvous rendezvous;
  const auto on_cpu = [](const heddle::Setup& setup) {
    Units units = small(setup);
    for (ParameterSlot& slot : units.front()->parameters())
      *slot.tensor = at::zeros(slot.tensor->sizes()).set_requires_grad(true);
    return units;
  };
  EXPECT_EQ(thrown_by([&] { model_on("paper", plugins, rendezvous, on_cpu); }),
            "error[input] parallel: parameter 'first.weight' is on cpu, and this run computes on meta\n"
            "  hint: move the model there, or choose the device with dist_env.backend (gloo: the CPU)");
}

}  // namespace
}  // namespace heddle::tests

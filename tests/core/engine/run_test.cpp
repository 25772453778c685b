// The third entry point: the engine's own loop, and the end of a run on a device.
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "heddle/mesh/call.h"
#include "heddle/mesh/dry.h"
#include "heddle/model/module.h"
#include "lib/testing/small_model.h"
#include "tests/core/engine/setups.h"
#include "tests/thrown.h"

namespace heddle::tests {

using namespace kits;
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double kRate = 0.02, kDecay = 0.01;

Node single() {
  return config::read_text("distributed: {strategy: single}\ndist_env: {backend: gloo}\n", "run.yaml");
}

engine::ModelHost host_of(Rendezvous& rendezvous) {
  return {rendezvous, [](const Setup&) { return kits::small_model({}); }, {}, 42, ""};
}

// A host whose learning rate decreases with each step. It records its calls.
struct Loop {
  AloneRendezvous rendezvous;
  PluginRegistry plugins{std::vector<std::filesystem::path>{}};
  std::vector<Batch> batches;
  std::vector<int64_t> begun, ended;
  std::vector<double> losses;
  engine::RunHost host{host_of(rendezvous)};

  Loop() {
    host.rates = [](int64_t step) { return engine::Rates{kRate / static_cast<double>(step + 1), kDecay}; };
    host.next_batches = [this](int64_t step, const DeviceMesh& mesh) -> std::span<const Batch> {
      begun.push_back(step);
      batches = kits::rows_of(step, mesh.rank("dp"), mesh.size("dp"), false);
      return batches;
    };
    host.after_step = [this](int64_t step, const StepReport& report, Step&, engine::Model&) {
      ended.push_back(step);
      losses.push_back(report.loss.item<double>());
      return true;
    };
  }
  void run() { engine::run(single(), plugins, host); }
};

TEST(Run, EqualsTheLossesOfAManualLoop) {
  Loop loop;
  loop.host.steps = 4;
  loop.run();
  AloneRendezvous rendezvous;
  engine::Model model = engine::model(single(), loop.plugins, host_of(rendezvous));
  Step step(model.stages, model.mesh, {});
  std::vector<double> losses;
  for (int64_t at = 0; at < 4; ++at)
    losses.push_back(step.run(kits::rows_of(at, 0, 1, false), kRate / static_cast<double>(at + 1), kDecay)
                         .loss.item<double>());
  EXPECT_EQ(loop.losses, losses);
  EXPECT_LT(losses.back(), losses.front());
}

TEST(Run, RefusesBatchesThatDoNotFitTheirTokens) {
  Loop loop;
  AloneRendezvous rendezvous;
  engine::Model model = engine::model(single(), loop.plugins, host_of(rendezvous));
  Step step(model.stages, model.mesh, {});
  const auto refusal = [&](const std::function<void(Batch&)>& change) {
    std::vector<Batch> batches = kits::rows_of(0, 0, 1, false);
    change(batches.back());
    Batch given = batches.back();
    const std::string of_step = thrown_by([&] { step.run(batches, kRate, kDecay); });
    EXPECT_EQ(thrown_by([&] { model.stages.transform(given, model.mesh); }), of_step);
    return of_step;
  };
  const auto longer = [](const at::Tensor& like) {
    return at::zeros({like.size(0), like.size(1) + 1}, at::kLong);
  };
  EXPECT_THAT(refusal([&](Batch& batch) { batch.labels = longer(batch.tokens); }),
              StartsWith("error[input] batch: Batch::labels is of the sizes ["));
  EXPECT_THAT(refusal([&](Batch& batch) { batch.positions = longer(batch.tokens).narrow(0, 0, 1); }),
              StartsWith("error[input] batch: Batch::positions is of the sizes [1, "));
  EXPECT_THAT(refusal([](Batch& batch) { batch.tokens = batch.tokens.to(at::kInt); }),
              StartsWith("error[input] batch: Batch::tokens has the dtype Int, not int64 (Long)"));
  EXPECT_THAT(refusal([](Batch& batch) { batch.documents = at::zeros({2}, at::kInt); }),
              StartsWith("error[input] batch: Batch::documents ends with 0, and the batch has "));
}

TEST(Run, GoesFromTheFirstStepToTheLast) {
  Loop loop;
  loop.host.first_step = 3;
  loop.host.steps = 6;
  loop.run();
  EXPECT_THAT(loop.begun, ElementsAre(3, 4, 5));
  EXPECT_EQ(loop.ended, loop.begun);
}

// A unit of the small model that records the step of each batch.
class StepUnit : public Unit {
 public:
  StepUnit(std::unique_ptr<Unit> inner, std::vector<int64_t>& seen) : inner_(std::move(inner)), seen_(seen) {}
  std::string_view name() const override { return inner_->name(); }
  Module* module() override { return nullptr; }
  std::vector<ParameterSlot> parameters() override { return inner_->parameters(); }
  Tensors forward(Tensors inputs, const Batch& batch) override {
    seen_.push_back(batch.step);
    return inner_->forward(std::move(inputs), batch);
  }

 private:
  std::unique_ptr<Unit> inner_;
  std::vector<int64_t>& seen_;
};

TEST(Run, SetsTheStepOfBatches) {
  Loop loop;
  std::vector<int64_t> seen;
  loop.host.make_units = [&](const heddle::Setup&) {
    Units units = kits::small_model({});
    units.front() = std::make_unique<StepUnit>(std::move(units.front()), seen);
    return units;
  };
  const auto given = loop.host.next_batches;
  loop.host.next_batches = [&](int64_t step, const DeviceMesh& mesh) -> std::span<const Batch> {
    (void)given(step, mesh);
    loop.batches.resize(1);
    loop.batches[0].step = 0;
    return loop.batches;
  };
  loop.host.first_step = 3;
  loop.host.steps = 6;
  loop.run();
  EXPECT_THAT(seen, ElementsAre(3, 4, 5));
}

TEST(Run, EndsWhenTheHostRequestsIt) {
  Loop loop;
  loop.host.steps = 6;
  const auto note = loop.host.after_step;
  loop.host.after_step = [&](int64_t step, const StepReport& report, Step& trained, engine::Model& model) {
    return note(step, report, trained, model) && step < 2;
  };
  loop.run();
  EXPECT_THAT(loop.begun, ElementsAre(0, 1, 2));
}

// Actions of a rank at the end of a run, in order.
using Deeds = std::vector<std::string>;

struct Clock : IDevice {
  explicit Clock(Deeds& deeds) : deeds(deeds) {}
  std::string absent() const override { return ""; }
  c10::Device start(int) override { return at::kMeta; }
  std::unique_ptr<Rendezvous> wrap(Rendezvous&) override { return nullptr; }
  DeviceMemory memory() const override { return {}; }
  void synchronize() override { deeds.push_back("waits for its device"); }
  Deeds& deeds;
};

struct RecordedRendezvous : DryRendezvous {
  explicit RecordedRendezvous(Deeds& deeds) : DryRendezvous(0, 2), deeds(deeds) {}
  std::string hold_rendezvous(const std::string& key, const std::string& text,
                              const Answer& answer) override {
    deeds.push_back("waits for the others");
    return DryRendezvous::hold_rendezvous(key, text, answer);
  }
  Deeds& deeds;
};

TEST(Run, CompletesWhenTheDevicesOfAllRanksAreDone) {
  Deeds deeds;
  RecordedRendezvous rendezvous(deeds);
  const std::vector<Axis> axes = {{"dp", 2}};
  engine::Model model{{}, nullptr, nullptr, mesh::build(axes, rendezvous, ""), {}};
  deeds.clear();
  engine::settle(model);
  EXPECT_THAT(deeds, ElementsAre());
  model.device = std::make_unique<Clock>(deeds);
  engine::settle(model);
  EXPECT_THAT(deeds, ElementsAre("waits for its device", "waits for the others"));
}

// A unit without parameters.
struct PlainUnit : Unit {
  std::string_view name() const override { return "layer.0"; }
  Module* module() override { return nullptr; }
  std::vector<ParameterSlot> parameters() override { return {}; }
  Tensors forward(Tensors inputs, const Batch&) override { return inputs; }
};

struct Counting : PlainUnit, UnitBuffers {
  std::vector<at::Tensor> buffers() override { return {at::Tensor()}; }
};

struct Listening : PlainUnit, AfterUpdate {
  void after_update(const Updated&, const DeviceMesh&) override {}
};

// Four units on two ranks, one per stage.
std::string model_refusal(const std::string& fields, std::unique_ptr<Unit> second) {
  const std::string block = "{pp_schedule: interleaved1f1b, " + fields + "}";
  auto setup = setup_of("{strategy: single, pp_size: 2, pipeline: " + block + "}", 2);
  setup.backend = "gloo";
  Plan plan = engine::choose(setup, built_plugins());
  plan.pipeline.modules =
      std::vector<std::vector<std::string>>{{"first"}, {"layer.0"}, {"layer.1"}, {"last"}};
  kits::Shape shape;
  shape.layers = 2;
  Units units = kits::small_model(shape);
  units[1] = std::move(second);
  return thrown_by([&] { engine::check_model(plan, setup, units); });
}

std::unique_ptr<Unit> quiet() {
  return std::make_unique<PlainUnit>();
}

TEST(CheckModel, RefusesPostValidationWithoutRollback) {
  const std::string late = "pp_post_validation: true";
  EXPECT_EQ(model_refusal(late, quiet()), "");
  EXPECT_THAT(model_refusal(late, std::make_unique<Counting>()),
              HasSubstr("'layer.0' has buffers that its forward changes"));
  EXPECT_THAT(model_refusal(late, std::make_unique<Listening>()),
              HasSubstr("modules of the model act on each update (a router's correction bias, or "
                        "router_aux_loss_type: global)"));
}

}  // namespace
}  // namespace heddle::tests

// The stage that core wraps around a strategy's: attribution of failures, and refused forwards.
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>

#include <map>
#include <stdexcept>

#include "heddle/parallel/build.h"
#include "heddle/transport/threads.h"
#include "lib/testing/small_model.h"
#include "tests/forwards_first.h"
#include "tests/thrown.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;

// Whole parameters. Throws in the function of this name.
class FailingStage : public ParallelStage {
 public:
  FailingStage(Units units, std::string fails, bool hosts)
      : units_(std::move(units)), fails_(std::move(fails)), hosts_(hosts) {
    for (const auto& unit : units_)
      for (ParameterSlot& slot : unit->parameters()) {
        owned_.push_back(whole_shard(slot, {}));
        slot.point(at::empty(slot.tensor->sizes()));
        owned_.back().tensor = *slot.tensor;
      }
  }
  Tensors forward(Tensors inputs, const Batch&) override { return inputs; }
  void finish_gradients() override { call("finish_gradients"); }
  std::span<Shard> owned() override { return owned_; }
  void parameters_changed(ParametersChange) override {}
  void expect_last_backward() override { call("expect_last_backward"); }
  bool can_host_forward() const override { return hosts_; }
  void begin_forward(const Batch&) override { call("begin_forward"); }
  void before(size_t) override { call("before"); }
  void after(size_t, const Tensors&) override { call("after"); }
  void end_forward() override { call("end_forward"); }

 private:
  void call(const std::string& function) const {
    if (function == fails_) throw std::runtime_error("no buffer is left");
  }
  Units units_;
  std::vector<Shard> owned_;
  std::string fails_;
  bool hosts_;
};

class FailingStrategy : public IStrategy {
 public:
  FailingStrategy(std::string fails, bool hosts) : fails_(std::move(fails)), hosts_(hosts) {}
  Needs needs() const override { return {}; }
  std::unique_ptr<ParallelStage> parallelize(Units units, const DeviceMesh&,
                                             std::span<const Placed>) override {
    return std::make_unique<FailingStage>(std::move(units), fails_, hosts_);
  }
  Author author() const override { return {"acme", "1.2.3", "libheddle_acme.so"}; }

 private:
  std::string fails_;
  bool hosts_;
};

std::string error_in(const std::function<void(ParallelStage&)>& body, const std::string& fails,
                     bool hosts = true, const std::function<void(Plan&)>& change = {}, int stages = 1) {
  std::string out;
  ThreadWorld::run(stages, [&](Rendezvous& rendezvous) {
    Plan plan;
    plan.strategy = std::make_unique<FailingStrategy>(fails, hosts);
    plan.strategy_name = "rows";
    if (change) change(plan);
    const DeviceMesh mesh = mesh::build(std::vector<Axis>{{"pp", stages}, {"dp", 1}}, rendezvous, "");
    Stages built = parallel::build(kits::small_model({}), plan, mesh, {}, 42);
    std::string text = thrown_by([&] { body(*built.front()); });
    if (rendezvous.rank() == 0) out = std::move(text);
  });
  return out;
}

TEST(BuiltStage, NamesThePluginOfAFunctionThatThrows) {
  const std::map<std::string, std::function<void(ParallelStage&)>> calls = {
      {"finish_gradients", [](ParallelStage& stage) { stage.finish_gradients(); }},
      {"expect_last_backward", [](ParallelStage& stage) { stage.expect_last_backward(); }},
      {"begin_forward", [](ParallelStage& stage) { stage.begin_forward(Batch()); }},
      {"before", [](ParallelStage& stage) { stage.before(1); }},
      {"after", [](ParallelStage& stage) { stage.after(1, {}); }},
      {"end_forward", [](ParallelStage& stage) { stage.end_forward(); }}};
  for (const auto& [function, call] : calls)
    EXPECT_EQ(error_in(call, function),
              "error[plugin_failed] libheddle_acme.so: the plugin 'acme' 1.2.3 threw while it ran " +
                  function + "(): no buffer is left\n  hint: tell the plugin's author, or fix it");
}

TEST(BuiltStage, RefusesAHostsForwardByTheNameOfTheStrategy) {
  EXPECT_EQ(
      error_in([](ParallelStage& stage) { stage.begin_forward(Batch()); }, "", /*hosts=*/false),
      "error[input] ParallelStage::begin_forward: the strategy 'rows' has no forward that a host drives\n"
      "  hint: choose a strategy that has one, or make one unit of the model");
}

TEST(BuiltStage, RefusesAHostsForwardOfAPipeline) {
  const auto pipeline = [](Plan& plan) { plan.schedule = std::make_shared<ForwardsFirst>(); };
  EXPECT_EQ(
      error_in([](ParallelStage& stage) { stage.begin_forward(Batch()); }, "", true, pipeline, 2),
      "error[input] ParallelStage::begin_forward: the model is cut into 2 stages of a pipeline, which have "
      "no forward that a host drives\n  hint: set pp_size: 1");
}

TEST(BuiltStage, RefusesAHostsForwardWithActivationCheckpointing) {
  const auto full = [](Plan& plan) { plan.activation_checkpointing = ActivationCheckpointing::full; };
  EXPECT_EQ(
      error_in([](ParallelStage& stage) { stage.begin_forward(Batch()); }, "", true, full),
      "error[config] distributed.activation_checkpointing: it recomputes units that heddle runs, and this "
      "model's own forward runs them\n"
      "  hint: set activation_checkpointing: false, and recompute in the model");
}

}  // namespace
}  // namespace heddle::tests

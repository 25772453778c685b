// Every call of a stage, guarded.
#include "core/plugin/named/named_stage.h"

#include <utility>

#include "heddle/parallel/stage_interfaces.h"

namespace heddle::plugin {
namespace {

// Has every optional interface; for those that the stage lacks it does what StageInterfaces does.
class NamedStage : public ParallelStage,
                   public GatherHints,
                   public ReductionHints,
                   public GradientAverage,
                   public WholeParameters,
                   public StepRestart {
  template <class Call>
  auto named(const char* function, Call&& call) const {
    const RunningCall::Scope scope(author_.name, function);
    try {
      return call();
    } catch (...) {  // the text is made when it is needed
      guarded_but_errors(author_, std::string("ran ") + function, [] { throw; });
      throw;
    }
  }

 public:
  NamedStage(Author author, std::unique_ptr<ParallelStage> inner)
      : author_(std::move(author)), inner_(std::move(inner)), optional_(*inner_) {}

  // A model's plugin is named where the unit threw (parallel::name_units); a host's units are not a plugin.
  Tensors forward(Tensors inputs, const Batch& batch) override {
    const RunningCall::Scope scope(author_.name, "forward()");
    try {
      return inner_->forward(std::move(inputs), batch);
    } catch (const Error&) {
      throw;
    } catch (const c10::Error&) {
      throw;
    } catch (const std::exception& error) {
      throw_named(author_, "ran forward() of its stage or of a unit", error.what());
    } catch (...) {
      throw_named(author_, "ran forward() of its stage or of a unit",
                  "something that is not a std::exception");
    }
  }
  void unshard() override {
    named("unshard()", [&] { optional_.unshard(); });
  }
  void reshard() override {
    named("reshard()", [&] { optional_.reshard(); });
  }
  void expect_last_backward() override {
    named("expect_last_backward()", [&] { optional_.expect_last_backward(); });
  }
  void finish_gradients() override {
    named("finish_gradients()", [&] { inner_->finish_gradients(); });
  }
  void reduce_gradients() override {
    named("reduce_gradients()", [&] { optional_.reduce_gradients(); });
  }
  void restart_step() override {
    if (!optional_.restarts())
      throw_named(author_, "was to begin a step anew", "its stage does not implement heddle::StepRestart");
    named("restart_step()", [&] { optional_.restart_step(); });
  }
  std::span<Shard> owned() override {
    return named("owned()", [&] { return inner_->owned(); });
  }
  void parameters_changed() override {
    named("parameters_changed()", [&] { inner_->parameters_changed(); });
  }
  double gradient_divisor() const override {
    return named("gradient_divisor()", [&] { return optional_.gradient_divisor(); });
  }
  std::vector<WholeParameter> hold_whole() override {
    return named("hold_whole()", [&] { return optional_.hold_whole(); });
  }
  void release_whole() override { optional_.release_whole(); }  // does not throw

 private:
  Author author_;
  std::unique_ptr<ParallelStage> inner_;
  StageInterfaces optional_;
};

}  // namespace

std::unique_ptr<ParallelStage> name_stage(const Author& author, std::unique_ptr<ParallelStage> stage) {
  if (!stage) throw_named(author, "parallelized the model", "it gave a null pointer");
  return std::make_unique<NamedStage>(author, std::move(stage));
}

}  // namespace heddle::plugin

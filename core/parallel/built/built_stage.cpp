// Partial gradients are packed into one buffer an axis, summed, and written back; the calls of a stage,
// attributed.
#include "core/parallel/built/built_stage.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/parallel/attributed.h"
#include "heddle/parallel/reduction.h"

namespace heddle::parallel {

PartialSums::PartialSums(std::span<Shard* const> shards, const DeviceMesh& mesh) {
  for (Shard* shard : shards) {
    if (!shard->tensor.requires_grad()) continue;
    check_axes(*shard, shard->partial, mesh);
    for (const std::string& axis : shard->partial)
      if (mesh.size(axis) > 1)
        sum_of(mesh.group(axis), shard->tensor.scalar_type()).entries.push_back({shard, {}, false});
  }
  for (Sum& sum : sums_) lay_out(sum);
}

PartialSums::Sum& PartialSums::sum_of(Communicator& ranks, at::ScalarType dtype) {
  const auto known = std::find_if(sums_.begin(), sums_.end(),
                                  [&](const Sum& sum) { return sum.ranks == &ranks && sum.dtype == dtype; });
  return known != sums_.end() ? *known : sums_.emplace_back(Sum{&ranks, dtype, {}, {}, {}});
}

void PartialSums::lay_out(Sum& sum) {
  const int64_t count = static_cast<int64_t>(sum.entries.size());
  int64_t elements = 0;
  for (const Entry& entry : sum.entries) elements += entry.shard->tensor.numel();
  const at::Tensor& first = sum.entries.front().shard->tensor;
  sum.buffer = at::empty({elements + count}, first.options().requires_grad(false));
  sum.counts = sum.buffer.narrow(0, elements, count);
  int64_t at = 0;
  for (Entry& entry : sum.entries) {
    const at::Tensor& tensor = entry.shard->tensor;
    entry.part = sum.buffer.narrow(0, at, tensor.numel()).view(tensor.sizes());
    at += tensor.numel();
  }
}

void PartialSums::add() {
  at::NoGradGuard no_gradients;
  for (Sum& sum : sums_) add(sum);
}

// A count is read only where this rank had no gradient itself, so the usual step reads nothing back. On meta
// no other rank had one either.
void PartialSums::add(Sum& sum) {
  sum.counts.fill_(1);
  for (size_t i = 0; i < sum.entries.size(); ++i) {
    Entry& entry = sum.entries[i];
    const at::Tensor& gradient = entry.shard->tensor.grad();
    if ((entry.had = gradient.defined())) {
      entry.part.copy_(gradient);
    } else {
      entry.part.zero_();
      sum.counts.select(0, static_cast<int64_t>(i)).zero_();
    }
  }
  sum.ranks->all_reduce(sum.buffer)->wait();
  for (size_t i = 0; i < sum.entries.size(); ++i) {
    Entry& entry = sum.entries[i];
    if (entry.had)
      entry.shard->tensor.mutable_grad().copy_(entry.part);
    else if (!sum.counts.is_meta() && sum.counts.select(0, static_cast<int64_t>(i)).item<double>() > 0)
      entry.shard->tensor.mutable_grad() = entry.part.clone();
  }
}

namespace {

std::vector<Shard*> partial_shards(ParallelStage& stage) {
  std::vector<Shard*> out;
  for (Shard& shard : stage.owned())
    if (!shard.partial.empty()) out.push_back(&shard);
  return out;
}

}  // namespace

// Calls `call`; what it throws carries the plugin's name. The text is made when it is needed.
template <class Call>
auto BuiltStage::named(const char* function, Call&& call) const {
  if (author_.name.empty()) return call();
  const RunningCall::Scope scope(author_.name, function);
  try {
    return call();
  } catch (...) {
    throw_again(author_, std::string("ran ") + function, Keep::errors);
  }
}

BuiltStage::BuiltStage(std::unique_ptr<ParallelStage> inner, const Plan& plan, const Stages& stages)
    : author_(plan.strategy->author()),
      strategy_(plan.strategy_name),
      recomputes_(plan.activation_checkpointing != ActivationCheckpointing::none),
      inner_(std::move(inner)),
      running_(stages.running()),
      pipeline_(stages.pipeline().stages()) {}

void BuiltStage::complete(const DeviceMesh& mesh, std::shared_ptr<TiedCopies> tied) {
  tied_ = std::move(tied);
  if (const std::vector<Shard*> shards = partial_shards(*inner_); !shards.empty())
    partial_.emplace(shards, mesh);
}

// A model's plugin is named where the unit threw (parallel::name_units); a host's units are not a plugin.
Tensors BuiltStage::forward(Tensors inputs, const Batch& batch) {
  if (pipeline_ > 1 && *running_ == 0)
    throw Error(ErrorCode::input, "ParallelStage::forward",
                "this is one of the " + std::to_string(pipeline_) +
                    " stages of a pipeline: its inputs come from another rank, by the schedule",
                "let heddle::Step run the schedule (with an optimizer of your own, if you have one), or set "
                "pp_size: 1");
  if (author_.name.empty()) return inner_->forward(std::move(inputs), batch);
  const RunningCall::Scope scope(author_.name, "forward()");
  const char* const doing = "ran forward() of its stage or of a unit";
  try {
    return inner_->forward(std::move(inputs), batch);
  } catch (const Error&) {
    throw;
  } catch (const c10::Error&) {
    throw;
  } catch (const std::exception& error) {
    throw_named(author_, doing, error.what());
  } catch (...) {
    throw_named(author_, doing, "something that is not a std::exception");
  }
}

void BuiltStage::finish_gradients() {
  named("finish_gradients()", [&] { inner_->finish_gradients(); });
  if (partial_) partial_->add();
  if (tied_) tied_->add_gradients();
}

std::span<Shard> BuiltStage::owned() {
  return named("owned()", [&] { return inner_->owned(); });
}

void BuiltStage::parameters_changed(ParametersChange change) {
  named("parameters_changed()", [&] { inner_->parameters_changed(change); });
}

std::vector<StateTensor> BuiltStage::state() {
  std::vector<StateTensor> state = named("state()", [&] { return inner_->state(); });
  for (StateTensor& tensor : state) tensor.name = strategy_ + "." + tensor.name;
  return state;
}

void BuiltStage::unshard() {
  named("unshard()", [&] { inner_->unshard(); });
}

void BuiltStage::reshard() {
  named("reshard()", [&] { inner_->reshard(); });
}

void BuiltStage::expect_last_backward() {
  named("expect_last_backward()", [&] { inner_->expect_last_backward(); });
}

void BuiltStage::reduce_gradients() {
  named("reduce_gradients()", [&] { inner_->reduce_gradients(); });
}

void BuiltStage::restart_step() {
  named("restart_step()", [&] { inner_->restart_step(); });
}

std::vector<WholeParameter> BuiltStage::hold_whole() {
  return named("hold_whole()", [&] { return inner_->hold_whole(); });
}

void BuiltStage::begin_forward(const Batch& batch) {
  if (!can_host_forward())
    throw Error(
        ErrorCode::input, "ParallelStage::begin_forward",
        pipeline_ > 1 ? "the model is cut into " + std::to_string(pipeline_) +
                            " stages of a pipeline, which have no forward that a host drives"
                      : "the strategy '" + strategy_ + "' has no forward that a host drives",
        pipeline_ > 1 ? "set pp_size: 1" : "choose a strategy that has one, or make one unit of the model");
  if (recomputes_)
    throw Error(ErrorCode::config, "distributed.activation_checkpointing",
                "it recomputes units that heddle runs, and this model's own forward runs them",
                "set activation_checkpointing: false, and recompute in the model");
  named("begin_forward()", [&] { inner_->begin_forward(batch); });
}

void BuiltStage::before(size_t unit) {
  named("before()", [&] { inner_->before(unit); });
}

void BuiltStage::after(size_t unit, const Tensors& outputs) {
  named("after()", [&] { inner_->after(unit, outputs); });
}

void BuiltStage::end_forward() {
  named("end_forward()", [&] { inner_->end_forward(); });
}

}  // namespace heddle::parallel

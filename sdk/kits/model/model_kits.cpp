// Kits for the models of a family: units, files, config.json, training.
#include "model_kits.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "../runs/engine_run.h"
#include "built_model.h"
#include "forward_checks.h"
#include "heddle/config/node.h"
#include "heddle/engine/engine.h"
#include "heddle/model/module_unit.h"
#include "key_checks.h"
#include "lib/checkpoint/huggingface/hf_layout.h"
#include "lib/testing/whole_tensors.h"
#include "small_keys.h"

namespace heddle::kits {
namespace {

// Checks each unit together with the units before it.
class UnitRules {
 public:
  void check(Unit& unit) {
    if (unit.name().empty() || !names_.insert(std::string(unit.name())).second)
      found("two units have the name '" + std::string(unit.name()) + "', or one has none");
    const TensorPlan* plan = unit.tensor_plan();
    if (names_.size() > 1 && (plan == nullptr ? TensorPlan() : *plan) != plan_)
      found("the unit '" + std::string(unit.name()) +
            "' has another tensor_plan() than the first unit; it must be the plan of the whole model");
    plan_ = plan == nullptr ? TensorPlan() : *plan;
    for (const ParameterSlot& slot : unit.parameters()) check(slot);
  }
  std::string text() const {
    return std::to_string(slots_.size()) + " parameters with " + std::to_string(count_) + " elements";
  }

 private:
  void check(const ParameterSlot& slot) {
    if (slot.tensor == nullptr || !slot.tensor->defined())
      found("the slot '" + slot.name + "' has no tensor");
    if (slot.name.empty() || slot.name.back() == '.') found("a slot has the name '" + slot.name + "'");
    if (!slot.tensor->is_meta()) found("'" + slot.name + "' is not on meta as requested");
    if (slot.tensor->is_floating_point() && slot.tensor->scalar_type() != at::kDouble)
      found("'" + slot.name + "' is " + c10::toString(slot.tensor->scalar_type()) + " instead of Double");
    const auto [at, is_new] = slots_.emplace(slot.name, *slot.tensor);
    if (!is_new && at->second.sizes() != slot.tensor->sizes())
      found("'" + slot.name + "' is tied to a tensor of another shape");
    if (!is_new && at->second.requires_grad() != slot.trainable())
      found("one slot of the tied '" + slot.name + "' trains, and the other does not");
    if (is_new) count_ += slot.tensor->numel();
  }

  std::set<std::string> names_;
  TensorPlan plan_;
  std::map<std::string, at::Tensor> slots_;
  int64_t count_ = 0;
};

std::string has_units(const ModelSpec& spec, const std::string& model_type) {
  const ModelFacts facts = spec.facts();
  if (facts.model_type != model_type)
    found("facts().model_type is '" + facts.model_type + "' instead of '" + model_type + "'");
  if (facts.vocabulary < 1 || facts.max_positions < 1) found("facts() has no vocabulary or no positions");
  if (spec.signature().empty()) found("signature() is empty: every model would fit every checkpoint");
  const Units units = spec.make_units(at::TensorOptions(at::kMeta).dtype(at::kDouble));
  if (units.size() < 2) found("the model has one unit, but pipeline stages need at least two");
  UnitRules rules;
  for (const auto& unit : units) rules.check(*unit);
  return rules.text();
}

// Matches a path, where `*` and `?` stand for characters within a segment.
bool matches(std::string_view pattern, std::string_view path) {
  if (pattern.empty()) return path.empty();
  if (pattern[0] == '*') {
    for (size_t taken = 0; taken <= path.size(); ++taken) {
      if (matches(pattern.substr(1), path.substr(taken))) return true;
      if (taken < path.size() && path[taken] == '.') return false;
    }
    return false;
  }
  if (path.empty() || (pattern[0] == '?' ? path[0] == '.' : pattern[0] != path[0])) return false;
  return matches(pattern.substr(1), path.substr(1));
}

std::string plans_its_modules(const ModelSpec& spec) {
  const Units units = spec.make_units(at::kMeta);
  std::set<std::string> paths;
  for (const auto& unit : units) {
    if (unit->module() == nullptr) throw NotRun{"its units have no modules"};
    const auto add = [&](const std::string& path, Module&) { paths.insert(path); };
    if (auto* known = dynamic_cast<ModuleUnit*>(unit.get()))
      known->visit(add);
    else
      unit->module()->visit(std::string(unit->name()), add);
  }
  const TensorPlan* plan = units.front()->tensor_plan();
  if (plan == nullptr || plan->empty()) throw NotRun{"it has no plan for the axis tp"};
  for (const auto& [pattern, style] : *plan)
    if (std::none_of(paths.begin(), paths.end(), [&](const auto& path) { return matches(pattern, path); }))
      found("the pattern '" + pattern + "' of its plan for tp ('" + style + "') matches no module");
  return std::to_string(plan->size()) + " patterns";
}

std::string fills_files(const ModelSpec& spec) {
  const checkpoint::HfLayout layout = checkpoint::layout_of(spec);
  checkpoint::check_whole(layout);
  std::set<std::string> tensors;
  for (const auto& unit : spec.make_units(at::kMeta))
    for (const ParameterSlot& slot : unit->parameters()) {
      const StoredParts parts = spec.stored(slot.name, slot.tensor->sizes());
      if (parts.empty()) tensors.insert(slot.name);
      for (const StoredPart& part : parts) tensors.insert(part.tensor);
    }
  for (const std::string& tensor : tensors) {
    if (spec.passes_over(tensor))
      found("passes_over('" + tensor + "') is true, but a parameter is stored there");
    for (const std::string& other : spec.other_names(tensor))
      if (tensors.count(other) != 0 && other != tensor)
        found("other_names('" + tensor + "') has '" + other + "', where another parameter is stored");
  }
  return layout.empty() ? "each parameter is the tensor of the same name"
                        : std::to_string(layout.size()) + " tensors consist of parameters";
}

// Returns the operations per token of the matrix products of one step on one rank, recorded on meta.
double recorded_operations(const ModelSpec& spec, const Rows& rows) {
  PluginRegistry plugins({});
  std::vector<Batch> batches = rows_of(0, 0, 1, true, rows);
  for (Batch& batch : batches) batch.extra = at::Tensor();
  engine::DryHost host;
  host.make_units = [&](const Setup&) {
    return spec.make_units(at::TensorOptions(at::kMeta).dtype(at::kFloat));
  };
  host.batches = [&](const DeviceMesh&) { return std::span<const Batch>(batches); };
  try {
    const engine::DryStep step = engine::dry_step(
        config::read_text("distributed: {strategy: single}\ndist_env: {backend: gloo}", "kit"), plugins,
        host);
    double operations = 0;
    for (const OperatorCall& call : step.computed.calls)
      if (call.moment >= step.begin && call.product) operations += call.cost.operations;
    return operations / static_cast<double>(rows.rows * rows.sequence);
  } catch (const Error& error) {
    const std::string text = error.what();
    if (text.find("no fake impl or Meta kernel") == text.npos) throw;
    throw NotRun{
        "forward() uses an operator that LibTorch cannot run on meta, so heddle check --cost cannot "
        "predict a step of this model"};
  }
}

// Accepted range of flops_per_token() relative to the recorded operations: formulas ignore small products,
// and some count half of causal attention.
constexpr double kLeastShare = 0.8, kLargestShare = 1.25;

std::string counts_operations(const ModelSpec& spec) {
  const double one = spec.flops_per_token(1), more = spec.flops_per_token(2048);
  if (!std::isfinite(one) || one <= 0) found("flops_per_token(1) is " + std::to_string(one));
  if (!(more >= one)) found("a longer sequence takes fewer operations per token");
  Rows rows = rows_for(spec);
  rows.sequence = std::min<int64_t>(spec.facts().max_positions, 64);
  const double counted = spec.flops_per_token(rows.sequence), recorded = recorded_operations(spec, rows);
  const auto rounded = [](double number) { return std::to_string(static_cast<int64_t>(number)); };
  if (!(counted >= kLeastShare * recorded && counted <= kLargestShare * recorded))
    found("flops_per_token(" + std::to_string(rows.sequence) + ") is " + rounded(counted) +
          ", but the matrix products of forward and backward take " + rounded(recorded) +
          " operations per token, where a multiply and an add count as two");
  return rounded(counted) + " per token at " + std::to_string(rows.sequence) + " tokens, recorded " +
         rounded(recorded) + " (ratio " + std::to_string(counted / recorded) + ")";
}

// Trains one model in different ways, each compared with `single` on one rank.
class Trainings {
 public:
  Trainings(std::shared_ptr<const ModelSpec> spec, const std::filesystem::path& file)
      : spec_(std::move(spec)), plugins_(plugin::search_path({})) {
    plugins_.load(file.string());
  }

  std::string run(const std::string& distributed, int ranks, bool rows = false, bool split = false,
                  ActivationCheckpointing checkpointing = ActivationCheckpointing::none) {
    Training training = plain(rows);
    training.device = check_device();
    training.distributed = distributed;
    training.ranks = ranks;
    training.split = split;
    training.several = rows;
    training.checkpointing = checkpointing;
    if (checkpointing != ActivationCheckpointing::selective)
      return trains_equally(plugins_, training, plain(rows));
    const auto again = std::make_shared<std::atomic<bool>>(false);
    training.make_units = [make = training.make_units, again] { return with_record(make(), again); };
    const std::string detail = trains_equally(plugins_, training, plain(rows));
    if (!*again)
      throw NotRun{"no unit ran again in the backward, because its operators keep their values themselves"};
    return detail;
  }
  bool has_plan() const {
    const Units units = spec_->make_units(at::kMeta);
    return units.front()->tensor_plan() != nullptr && !units.front()->tensor_plan()->empty();
  }

 private:
  // Adds a seam to each unit that records whether the unit is recomputed.
  static Units with_record(Units units, const std::shared_ptr<std::atomic<bool>>& again) {
    for (const auto& unit : units)
      if (unit->module() != nullptr)
        unit->module()->input.add([again](at::Tensor x) {
          if (is_recomputed()) *again = true;
          return x;
        });
    return units;
  }
  Training plain(bool rows) const {
    Training out;
    out.make_units = [spec = spec_] {
      return spec->make_units(at::TensorOptions(at::kMeta).dtype(at::kFloat));
    };
    out.batches = [rows, sizes = rows_for(*spec_)](int64_t step, int64_t rank, int64_t ranks) {
      std::vector<Batch> batches = rows_of(step, rank, ranks, rows, sizes);
      for (Batch& batch : batches) batch.extra = at::Tensor();
      return batches;
    };
    out.values = telling_values;
    return out;
  }

  std::shared_ptr<const ModelSpec> spec_;
  PluginRegistry plugins_;
};

const std::string kSharded = "strategy: fsdp2, mp_policy: {param_dtype: float32, reduce_dtype: float32}";

void run_trainings(const std::string& thing, const std::function<Trainings&()>& made, Attempts& attempt) {
  using Checkpointing = ActivationCheckpointing;
  const auto kit = [&](const std::string& sentence, const std::function<std::string(Trainings&)>& train) {
    attempt.training(thing + sentence, [&] { return train(made()); });
  };
  kit("trains under single", [](Trainings& t) { return t.run("strategy: single", 1); });
  kit("trains with a split backward", [](Trainings& t) { return t.run("strategy: single", 1, true, true); });
  kit("trains with activation_checkpointing: full",
      [](Trainings& t) { return t.run("strategy: single", 1, false, false, Checkpointing::full); });
  kit("trains with activation_checkpointing: selective",
      [](Trainings& t) { return t.run("strategy: single", 1, false, false, Checkpointing::selective); });
  kit("trains under fsdp2 on 2 ranks", [](Trainings& t) { return t.run(kSharded, 2); });
  kit("trains with tp_size: 2", [](Trainings& t) {
    try {
      return t.run("strategy: single, tp_size: 2", 2);
    } catch (const NotRun& refused) {
      if (t.has_plan() && refused.where.find("plan") != refused.where.npos)
        found("its tensor_plan() is refused: " + refused.why);
      throw;
    }
  });
  kit("trains with tp_size: 2 and sequence_parallel",
      [](Trainings& t) { return t.run(kSharded + ", tp_size: 2, sequence_parallel: true", 2); });
  kit("trains with cp_size: 2", [](Trainings& t) { return t.run(kSharded + ", cp_size: 2", 2); });
  kit("trains with ep_size: 2", [](Trainings& t) { return t.run(kSharded + ", ep_size: 2", 2); });
  kit("trains with pp_size: 2", [](Trainings& t) {
    return t.run("strategy: single, pp_size: 2, pipeline: {pp_schedule: gpipe, pp_microbatch_size: 1}", 2,
                 true);
  });
}

// Runs one check of the model on one rank. device: null for the CPU.
std::string check_on(const CheckDevice* device, const ModelSubject& model,
                     std::string (*check)(const ModelSite&)) {
  const auto spec = model.read();
  std::string out;
  run_alone(device, [&](Rendezvous& rendezvous) { out = check({*spec, rendezvous}); });
  return out;
}

// Returns false if a unit uses a parameter that it does not register, because training could then read freed
// memory.
bool run_description_kits(const std::string& thing, const ModelSubject& model, Attempts& attempt) {
  const OfferedModel& offered = model.offered;
  const auto kit = [&](const std::string& sentence, std::string (*check)(const ModelSite&)) {
    return attempt.training(thing + sentence, [&] { return check_on(check_device(), model, check); });
  };
  attempt(thing + "make_units(): on meta, one shape per name",
          [&] { return has_units(*model.read(), type_in_files(model.keys())); });
  attempt.on_cpu(thing + "make_units(): on other devices, values from the default generator",
                 [&] { return makes_the_same_twice(offered, model.keys()); });
  attempt(thing + "tensor_plan(): each pattern matches a module",
          [&] { return plans_its_modules(*model.read()); });
  attempt(thing + "stored(): every element of parameters and tensors exactly once",
          [&] { return fills_files(*model.read()); });
  attempt(thing + "flops_per_token(): the operations of the matrix products, more for a longer sequence",
          [&] { return counts_operations(*model.read()); });
  attempt(thing + "read(): an unknown key is refused in a YAML and not in a config.json",
          [&] { return refuses_unknown_keys(offered, model.keys()); });
  attempt(thing + "signature(): changes with each key that changes parameters",
          [&] { return changes_its_signature(model.families, offered, model.keys()); });
  const bool computes =
      kit("forward(): {sum of token losses} with labels, {logits} without", gives_the_sum_of_losses);
  kit("forward(): keeps nothing from one batch for the next", keeps_nothing);
  kit("forward(): padding tokens are not counted", leaves_padding_out);
  kit("forward(): documents in one row are independent", separates_documents);
  kit("facts(): the longest sequence and the last token", takes_its_longest_sequence);
  // Trainings rely on this check, even if the other kits of the CPU are not run.
  const std::string complete = "parameters(): every child and tensor is registered, no unit uses another's";
  const bool registered =
      check_device() == nullptr
          ? kit(complete, registers_parameters)
          : attempt(thing + complete, [&] { return check_on(nullptr, model, registers_parameters); });
  attempt.training_on_cpu(thing + "gradients are finite differences in float64",
                          [&] { return check_on(nullptr, model, has_right_gradients); });
  attempt.training_on_cpu(thing + "config_json(): read() gives the same model",
                          [&] { return reads_what_it_writes(model.families, offered, model.keys()); });
  return registered || !computes;
}

}  // namespace

void run_type_kits(const ModelSubject& model, Attempts& attempt) {
  const std::string thing = "model '" + model.type + "': ";
  attempt.begin_offer("model '" + model.type + "'");
  const bool registered = run_description_kits(thing, model, attempt);
  std::unique_ptr<Trainings> trainings;
  const auto made = [&]() -> Trainings& {
    if (!registered) throw NotRun{"a unit uses a parameter that it does not register"};
    if (!trainings) trainings = std::make_unique<Trainings>(model.read(), model.families.file());
    return *trainings;
  };
  run_trainings(thing, made, attempt);
}

}  // namespace heddle::kits

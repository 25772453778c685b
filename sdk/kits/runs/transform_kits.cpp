// The kits of transforms: a small Llama is transformed equally wherever it is created, and trains equally
// with any parallelism.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>

#include "../given_fields.h"
#include "../kind_kits.h"
#include "../plugin_kit.h"
#include "core/plugin/search_path.h"
#include "engine_run.h"
#include "heddle/base/text.h"
#include "heddle/nn/token_loss.h"
#include "heddle/plugin/transform.h"
#include "lib/testing/whole_tensors.h"

namespace heddle::kits {
namespace {

const std::string kFullySharded = "strategy: fsdp2, mp_policy: {param_dtype: float32, reduce_dtype: float32}";
// The other model of a transform that has one.
class OtherLlama : public ModelSpec {
 public:
  ModelFacts facts() const override { return {"llama", kVocabulary, kLength, ""}; }
  Units make_units(const at::TensorOptions& options) const override {
    return small_llama({.valued = options.device().type() != at::kMeta});
  }
  std::map<std::string, std::string> signature() const override { return {}; }
  std::string config_json(const std::string&) const override { return "{}"; }
  double flops_per_token(int64_t) const override { return 0; }

 private:
  static constexpr int64_t kLength = 8;
};

TransformRun context_of(const OfferedTransform& offered) {
  TransformRun run;
  run.where = "the section of the kit";
  run.seed = 42;
  if (!offered.model_field.empty())
    run.other_model = std::make_shared<const OtherModel>(
        OtherModel{std::make_shared<const OtherLlama>(), {}, at::kFloat, ""});
  return run;
}

struct Changed {
  Units units;
  Transformed said;
};

class TransformKits {
 public:
  TransformKits(const OfferedTransform& offered, std::filesystem::path file, const Node& fields)
      : offered_(offered),
        file_(std::move(file)),
        values_(offered.resolve(fields).values),
        context_(context_of(offered)) {}

  // Transforms a small model. Throws NotRun if the transform refuses it. Rethrows faults of a plugin.
  Changed changed(bool valued) const {
    Changed out{small_llama({.valued = valued}), {}};
    try {
      out.said = transform().apply(out.units, context_);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::plugin_failed || error.code() == ErrorCode::internal) throw;
      throw NotRun{"it refuses the small model: " + error.message(), error.where()};
    }
    return out;
  }

  std::string says_what_it_did() const {
    const Transformed said = changed(false).said;  // the engine has compared it with the units
    return std::to_string(said.frozen.size()) + " frozen, " + std::to_string(said.added.size()) + " added";
  }

  std::string is_the_same(bool valued) const {
    const Changed one = changed(false), two = changed(valued);
    const std::string other = valued ? " with values" : " the second time";
    if (one.said.frozen != two.said.frozen || one.said.added != two.said.added)
      found("it returns something else" + other);
    const std::vector<std::string> a = listed(one.units), b = listed(two.units);
    for (size_t i = 0; i < std::max(a.size(), b.size()); ++i)
      if (i >= a.size() || i >= b.size() || a[i] != b[i])
        found("the units differ" + other + ": " + (i < b.size() ? b[i] : "less") + ", but on meta " +
              (i < a.size() ? a[i] : "less"));
    return std::to_string(a.size()) + " modules and parameters";
  }

  std::string keeps_values() const {
    const Units plain = small_llama({.valued = true});
    const Changed mine = changed(true);
    Named values;
    for (const auto& unit : plain)
      for (const ParameterSlot& slot : unit->parameters()) values[slot.name] = *slot.tensor;
    for (const auto& unit : mine.units)
      for (const ParameterSlot& slot : unit->parameters())
        if (values.count(slot.name) != 0 && !at::equal(values[slot.name], *slot.tensor))
          found("it changed values of '" + slot.name + "'");
    return "";
  }

  // Checks that added modules draw values only from the default generator, as layers do, and that a forward
  // uses no other random values.
  std::string draws_nothing() const {
    const auto drawn = [this] {
      at::Generator generator = at::detail::getDefaultCPUGenerator();
      {
        const std::lock_guard lock(generator.mutex());
        generator.set_current_seed(7);
      }
      return changed(true);
    };
    const Changed one = drawn(), two = drawn(), three = changed(true);
    Named values;
    for (const auto& unit : one.units)
      for (const ParameterSlot& slot : unit->parameters()) values[slot.name] = *slot.tensor;
    for (const auto& unit : two.units)
      for (const ParameterSlot& slot : unit->parameters())
        if (!at::equal(values.at(slot.name), *slot.tensor))
          found("'" + slot.name + "' has different values in a second model: leave initial values to Init");
    const at::NoGradGuard no_gradients;
    for (const auto& unit : three.units)
      for (const ParameterSlot& slot : unit->parameters()) slot.tensor->copy_(values.at(slot.name));
    const Batch batch = rows_in_one_batch();
    const double first = loss_of(one.units, batch), second = loss_of(three.units, batch);
    if (first != second)
      found("two models of the same values give the losses " + std::to_string(first) + " and " +
            std::to_string(second) +
            ": ranks would compute with different values; draw them from Batch::draws and "
            "TransformRun::seed");
    return "";
  }

  // Checks that Transformed::values gives a box of a parameter the same values in every call.
  std::string gives_the_same_values() const {
    const Changed mine = changed(false);
    if (!mine.said.values) throw NotRun{"it gives no values of its own (Transformed::values)"};
    const ParameterSource source = mine.said.values([](const Shard& shard) {
      const int64_t count =
          std::accumulate(shard.shape.begin(), shard.shape.end(), int64_t{1}, std::multiplies<>());
      const at::Tensor whole =
          (at::arange(count, at::kDouble) * 0.7 + static_cast<double>(shard.name.size())).sin();
      shard.tensor.copy_(box_of(shard, whole.view(shard.shape)));
      return true;
    });
    if (!source) throw NotRun{"its values need a model's files"};
    const at::NoGradGuard no_gradients;
    int given = 0;
    for (const auto& unit : mine.units)
      for (const ParameterSlot& slot : unit->parameters()) {
        Shard whole = whole_shard(slot, {});
        whole.tensor =
            at::empty(slot.tensor->sizes(), slot.tensor->options().device(at::kCPU).requires_grad(false));
        if (whole.tensor.numel() == 0 || !source(whole)) continue;
        ++given;
        Shard box = whole;
        const bool has_rows = box.tensor.dim() > 0;
        if (has_rows) box.offset[0] = box.shape[0] / 2;
        const at::Tensor same =
            has_rows ? whole.tensor.narrow(0, box.offset[0], box.shape[0] - box.offset[0]) : whole.tensor;
        box.tensor = at::empty(same.sizes(), same.options());
        if (!source(box) || !at::equal(box.tensor, same))
          found("'" + slot.name +
                "' has different values when a part of it is read: ranks would begin with different values, "
                "and so would a repeated run");
      }
    return std::to_string(given) + " parameters";
  }

  // Checks that a link that replaces the loss keeps the contract of TokenLoss::instead.
  std::string keeps_the_loss() const {
    const Changed mine = changed(true);
    const Batch all = rows_in_one_batch();
    Batch first = all, second = all, none = all;
    const int64_t half = all.labels.size(1) / 2;
    first.labels = all.labels.clone(), second.labels = all.labels.clone();
    first.labels.narrow(1, 0, half).fill_(Batch::kIgnore);
    second.labels.narrow(1, half, all.labels.size(1) - half).fill_(Batch::kIgnore);
    none.labels = at::full_like(all.labels, Batch::kIgnore);
    const double sum = loss_of(mine.units, all),
                 parts = loss_of(mine.units, first) + loss_of(mine.units, second);
    if (!(std::abs(sum - parts) <= 1e-4 * std::max(1.0, std::abs(sum))))
      found("the losses with labels of -100 in one half and in the other add up to " + std::to_string(parts) +
            ", but the loss of all labels is " + std::to_string(sum) +
            ": the loss must be the sum over the labels that count");
    if (const double loss = loss_and_gradients(mine.units, none, "a batch whose labels are all -100");
        loss != 0)
      found("a batch whose labels are all -100 has the loss " + std::to_string(loss));
    const model::LossHead head = model::loss_head_of(mine.units);
    if (head.linear == nullptr || !head.linear->weight.is_floating_point() || !is_exact(head.linear->weight))
      return "the head's weight is packed";
    {
      const at::NoGradGuard no_gradients;
      head.linear->weight.mul_(kLargeLogits);
    }
    (void)loss_and_gradients(mine.units, all, "logits of several thousands");
    return "";
  }

  std::string gradients_reach_what_it_adds() const {
    const Changed mine = changed(true);
    if (mine.said.added.empty()) throw NotRun{"it adds nothing"};
    const std::set<std::string> added(mine.said.added.begin(), mine.said.added.end());
    const std::vector<Batch> batches = rows_of(0, 0, 1, false, {kVocabulary, 8, kRows, false});
    Tensors flow;
    for (const auto& unit : mine.units) flow = unit->forward(std::move(flow), batches.front());
    flow.front().backward();
    for (const auto& unit : mine.units)
      for (const ParameterSlot& slot : unit->parameters())
        if (added.count(slot.name) != 0 && slot.trainable() && !slot.tensor->grad().defined())
          found("'" + slot.name + "' trains, but no gradient reaches it");
    return std::to_string(added.size()) + " parameters";
  }

  // Compares a training with one rank under `single`. axis: along which the training is split.
  std::string trains(Training training, const std::string& axis = "") const {
    for (const Refusal& refusal : offered_.refuses)
      if (refusal.axis == axis) throw NotRun{refusal.text};
    PluginRegistry plugins = registry();
    Training oracle = plain(training.split || training.several);
    training.make_units = oracle.make_units;
    training.batches = oracle.batches;
    training.device = check_device();
    return trains_equally(plugins, training, oracle);
  }

  std::string keeps_frozen_values() const {
    const Changed mine = changed(true);
    if (mine.said.frozen.empty()) throw NotRun{"it freezes nothing"};
    Named before;
    for (const auto& unit : mine.units)
      for (const ParameterSlot& slot : unit->parameters()) before[slot.name] = slot.tensor->detach().clone();
    PluginRegistry plugins = registry();
    Training training = plain(false);
    training.device = check_device();
    const Outcome after = train(plugins, training);
    for (const std::string& name : mine.said.frozen)
      if (!at::equal(before.at(name), after.parameters.at(name))) found("a run changed '" + name + "'");
    return std::to_string(mine.said.frozen.size()) + " parameters";
  }

 private:
  static constexpr double kLargeLogits = 3000;

  static Batch rows_in_one_batch() {
    Batch batch = rows_of(0, 0, 1, true, {kVocabulary, 8, kRows, false}).front();
    batch.draws = at::arange(batch.tokens.numel(), batch.tokens.options()).view(batch.tokens.sizes());
    return batch;
  }
  static bool is_exact(const at::Tensor& weight) { return weight.scalar_type() == at::kFloat; }
  static at::Tensor forward(const Units& units, const Batch& batch) {
    Tensors flow;
    for (const auto& unit : units) flow = unit->forward(std::move(flow), batch);
    return flow.front().sum();
  }
  static double loss_of(const Units& units, const Batch& batch) {
    const at::NoGradGuard no_gradients;
    return forward(units, batch).item<double>();
  }
  // Runs a forward and a backward, checks loss and gradients, and resets the gradients.
  static double loss_and_gradients(const Units& units, const Batch& batch, const std::string& what) {
    const at::Tensor sum = forward(units, batch);
    const double loss = sum.item<double>();
    if (!std::isfinite(loss)) found(what + ": the loss is " + std::to_string(loss));
    if (!sum.requires_grad()) return loss;
    sum.backward();
    std::string fault;
    for (const auto& unit : units)
      for (const ParameterSlot& slot : unit->parameters()) {
        at::Tensor& gradient = slot.tensor->mutable_grad();
        if (fault.empty() && gradient.defined() && !gradient.isfinite().all().item<bool>())
          fault = what + ": the gradient of '" + slot.name + "' is not finite";
        if (fault.empty() && gradient.defined() && loss == 0 && gradient.ne(0).any().item<bool>())
          fault = what + ": the loss is 0, but the gradient of '" + slot.name + "' is not";
        gradient = at::Tensor();
      }
    if (!fault.empty()) found(fault);
    return loss;
  }

  // Returns one object for all calls, as in a run.
  const ITransform& transform() const {
    std::call_once(once_, [this] { transform_ = offered_.make(values_); });
    return *transform_;
  }

  PluginRegistry registry() const {
    PluginRegistry plugins(plugin::search_path({}));
    plugins.load(file_.string());
    return plugins;
  }

  Training plain(bool rows) const {
    (void)changed(false);
    Training out;
    out.make_units = [this] { return changed(false).units; };
    out.batches = [rows](int64_t step, int64_t rank, int64_t ranks) {
      return rows_of(step, rank, ranks, rows, {kVocabulary, 8, kRows, false});
    };
    return out;
  }

  // Lists modules with their kinds, and parameters with their shapes and whether they train.
  static std::vector<std::string> listed(const Units& units) {
    std::vector<std::string> out;
    for (const auto& unit : units) {
      if (unit->module() != nullptr)
        unit->module()->visit(std::string(unit->name()), [&](const std::string& path, Module& module) {
          out.push_back("'" + path + "' (" + std::string(module.kind()) + ")");
        });
      for (const ParameterSlot& slot : unit->parameters()) {
        std::vector<std::string> sizes;
        for (const int64_t size : slot.tensor->sizes()) sizes.push_back(std::to_string(size));
        out.push_back("'" + slot.name + "' [" + text::join(sizes) + "]" +
                      (slot.trainable() ? "" : " frozen"));
      }
    }
    return out;
  }

  const OfferedTransform& offered_;
  std::filesystem::path file_;
  Node values_;
  TransformRun context_;
  mutable std::once_flag once_;
  mutable std::unique_ptr<ITransform> transform_;
};

void run_trainings(const TransformKits& kits, const std::string& thing, Attempts& attempt) {
  using Checkpointing = ActivationCheckpointing;
  const auto kit = [&](const std::string& sentence, Training training, const std::string& axis = "") {
    attempt.training(thing + sentence, [&kits, training, axis] { return kits.trains(training, axis); });
  };
  kit("trains with a split backward", {.split = true});
  kit("trains with activation_checkpointing: full", {.checkpointing = Checkpointing::full});
  kit("an evaluation between two steps changes nothing", {.evaluates = true});
  kit("trains under fsdp2 on 2 ranks", {.distributed = kFullySharded, .ranks = 2}, "dp_shard");
  kit("trains with tp_size: 2", {.distributed = "strategy: single, tp_size: 2", .ranks = 2}, "tp");
  kit("trains with tp_size: 2 and sequence_parallel",
      {.distributed = kFullySharded + ", tp_size: 2, sequence_parallel: true", .ranks = 2}, "tp");
  kit("trains with pp_size: 2",
      {.distributed = "strategy: single, pp_size: 2, pipeline: {pp_schedule: gpipe, pp_microbatch_size: 1}",
       .ranks = 2,
       .several = true},
      "pp");
}

void check_transform(const OfferedSchema& schema, const CheckedPlugin& plugin, Attempts& attempt) {
  const auto& offered = static_cast<const OfferedTransform&>(schema);
  run_schema_kits("transform", offered, attempt);
  const std::string thing = "transform '" + offered.name + "': ";
  if (!offered.make) {
    attempt(thing + "is built", [&]() -> std::string { throw NotRun{offered.not_built}; });
    return;
  }
  const TransformKits kits(offered, plugin.file, fields_of(offered, plugin));
  attempt(thing + "apply(): freezes and adds what it says", [&] { return kits.says_what_it_did(); });
  attempt(thing + "apply(): the same for every call", [&] { return kits.is_the_same(false); });
  attempt(thing + "apply(): transforms units on meta and with values equally",
          [&] { return kits.is_the_same(true); });
  attempt(thing + "apply(): changes no value of a parameter", [&] { return kits.keeps_values(); });
  attempt.training_on_cpu(thing + "apply(): draws no values itself", [&] { return kits.draws_nothing(); });
  attempt.training_on_cpu(thing + "Transformed::values: the same for every box",
                          [&] { return kits.gives_the_same_values(); });
  attempt.training_on_cpu(thing + "TokenLoss::instead: labels of -100, and large logits",
                          [&] { return kits.keeps_the_loss(); });
  attempt.training_on_cpu(thing + "Transformed::added: gradients reach what trains",
                          [&] { return kits.gradients_reach_what_it_adds(); });
  attempt.training(thing + "Transformed::frozen: a run does not change these parameters",
                   [&] { return kits.keeps_frozen_values(); });
  run_trainings(kits, thing, attempt);
}

const KindKits kTransform(OfferedTransform::kKind, check_transform);

}  // namespace
}  // namespace heddle::kits

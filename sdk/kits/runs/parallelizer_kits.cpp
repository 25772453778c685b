// Kits of parallelizers. Each kit is a training that differs from the plain one in one property.
#include "parallelizer_kits.h"

#include <ATen/ops/equal.h>

#include <memory>
#include <optional>
#include <utility>

#include "../attempt.h"
#include "core/plugin/search_path.h"
#include "engine_run.h"
#include "lib/testing/whole_tensors.h"

namespace heddle::kits {
namespace {

const std::string kSharded = "strategy: fsdp2, mp_policy: {param_dtype: float32, reduce_dtype: float32}";

using Checkpointing = ActivationCheckpointing;

// The training of a kit.
struct Case {
  LlamaShape shape;
  Rows rows = {kVocabulary, 8, kRows, false};
  bool split = false, several = false, evaluates = false, beside = false, pipeline = false;
  Checkpointing checkpointing = Checkpointing::none;
};

class AlongOneAxis {
 public:
  AlongOneAxis(const OfferedParallelizer& offered, std::filesystem::path file, AxisInfo axis, int ranks)
      : offered_(offered), file_(std::move(file)), axis_(std::move(axis)), ranks_(ranks) {}

  std::string trains(const Case& one) const {
    return on_a_model(one, [this](PluginRegistry& plugins, const Case& each, const Training& training) {
      return trains_equally(plugins, training, whole_run(each));
    });
  }

  std::string same_bits_twice() const {
    return on_a_model({}, [](PluginRegistry& plugins, const Case&, const Training& training) {
      refuse_or_pass(plugins, training);
      const Outcome one = train(plugins, training), two = train(plugins, training);
      for (const auto& [name, tensor] : one.parameters)
        if (!at::equal(tensor, two.parameters.at(name))) found("'" + name + "' differs between two runs");
      return std::string();
    });
  }

  bool changes_batches() const {
    const auto made = offered_.make(offered_.resolve(Node::map({})).values);
    return made->transform_order().has_value() || !made->side_outputs().empty();
  }

 private:
  // Runs on a Llama, and on a Mixtral if the parallelizer refuses the Llama or does nothing in it. Throws the
  // first refusal, or NotRun if no function of the parallelizer ran: equal results would show nothing.
  template <class Run>
  std::string on_a_model(const Case& one, const Run& run) const {
    std::optional<NotRun> refused;
    for (const bool experts : {false, true}) {
      Case each = one;
      each.shape.experts = experts;
      Training training = split_run(each);
      training.acted = std::make_shared<Acted>();
      training.acted->axis = axis_.name;
      try {
        PluginRegistry plugins = registry();
        const std::string detail = run(plugins, each, training);
        if (one.checkpointing == Checkpointing::selective && training.acted->yes && !training.acted->again)
          throw NotRun{"no link or seam of it ran again in the backward"};
        if (training.acted->yes || changes_batches()) return detail;
      } catch (const NotRun& why) {
        if (!refused) refused = why;
      }
    }
    if (refused) throw *refused;
    throw NotRun{"no link or seam of it ran and it placed no parameter, neither in a Llama nor in a Mixtral"};
  }

  // Returns whether it has an axis. A parallelizer without one acts if `distributed:` has its section.
  bool has_axis() const { return !axis_.key.empty(); }
  std::string block() const { return ", " + offered_.name + ": {}"; }

  // Loads the file first, so that its parallelizer is the one of the axis.
  PluginRegistry registry() const {
    PluginRegistry plugins(plugin::search_path({}));
    plugins.load(file_.string());
    return plugins;
  }

  // Returns the training along the axis. Ranks of tp have the same samples, so they train under `single`;
  // other axes belong to data-parallel ranks.
  Training split_run(const Case& one) const {
    Training out = training_of(one);
    const bool alone = axis_.name == "tp" && !one.beside;
    out.distributed = alone ? "strategy: single" : kSharded;
    out.distributed += has_axis() ? ", " + axis_.key + ": " + std::to_string(ranks_) : block();
    out.ranks = ranks_ * (one.beside ? 2 : 1) * (one.pipeline ? 2 : 1);
    if (one.pipeline)
      out.distributed += ", pp_size: 2, pipeline: {pp_schedule: gpipe, pp_microbatch_size: 1}";
    out.device = check_device();
    out.split = one.split;
    out.several = one.several;
    out.checkpointing = one.checkpointing;
    out.evaluates = one.evaluates;
    return out;
  }
  Training whole_run(const Case& one) const {
    Training out = training_of(one);
    if (!has_axis()) out.distributed += block();
    if (!has_axis() || !changes_batches()) return out;
    out.alone = &offered_;
    out.distributed = kSharded;  // with the data axes that its views fold
    return out;
  }
  static Training training_of(const Case& one) {
    Training out;
    out.make_units = [shape = one.shape] { return small_llama(shape); };
    const bool rows = one.split || one.several || one.pipeline;
    out.batches = [one, rows](int64_t step, int64_t rank, int64_t ranks) {
      return rows_of(step, rank, ranks, rows, one.rows);
    };
    return out;
  }

  const OfferedParallelizer& offered_;
  std::filesystem::path file_;
  AxisInfo axis_;
  int ranks_;
};

// Returns the axes of this parallelizer that have a key.
std::vector<AxisInfo> axes_of(const OfferedParallelizer& offered) {
  AxisTable table;
  table.add(offered.needs.new_axes, offered.needs.new_views, "the parallelizer '" + offered.name + "'");
  std::vector<AxisInfo> out;
  for (const std::string& name : offered.needs.axes)
    if (const AxisInfo* axis = table.find(name); axis != nullptr && !axis->key.empty()) out.push_back(*axis);
  return out;
}

using AddKit = std::function<void(const std::string& sentence, void (*change)(Case&))>;

AddKit kits_along(const AlongOneAxis& along, const std::string& thing, Attempts& attempt) {
  return [&along, thing, &attempt](const std::string& sentence, void (*change)(Case&)) {
    Case one;
    change(one);
    attempt.training(thing + sentence, [&along, one] { return along.trains(one); });
  };
}

// Runs the kits of a parallelizer that changes batches or adds losses and metrics, and splits nothing.
void run_without_axis(const AlongOneAxis& along, const std::string& thing, Attempts& attempt) {
  const AddKit kit = kits_along(along, thing + "transform(), side_outputs(): ", attempt);
  kit("batches, losses and metrics are equal to one rank", [](Case& c) { c.several = true; });
  kit("an evaluation between two steps changes nothing", [](Case& c) { c.evaluates = true; });
  kit("rows of several documents", [](Case& c) { c.rows.packed = c.several = true; });
  kit("equal on every rank of a pipeline", [](Case& c) { c.pipeline = true; });
  attempt.training(thing + "two runs are bitwise equal", [&] { return along.same_bits_twice(); });
}

void run_along(const AlongOneAxis& along, const std::string& thing, Attempts& attempt) {
  const AddKit kit = kits_along(along, thing + "apply(): ", attempt);
  attempt.training(thing + "transform(), side_outputs(): batches, losses and metrics are equal to one rank",
                   [&] {
                     if (!along.changes_batches())
                       throw NotRun{"it changes no batch and declares no loss or metric"};
                     Case one;
                     one.several = true;
                     return along.trains(one);
                   });
  kit("splits slots, sets seams, returns what it split", [](Case&) {});
  kit("its seams support a split backward", [](Case& c) { c.split = true; });
  kit("its seams may be recomputed in the backward", [](Case& c) { c.checkpointing = Checkpointing::full; });
  kit("selective checkpointing may keep results of its seams",
      [](Case& c) { c.checkpointing = Checkpointing::selective; });
  kit("several microbatches may be in flight", [](Case& c) { c.several = true; });
  kit("parameters that have values keep them", [](Case& c) { c.shape.valued = true; });
  kit("a tied parameter is split once", [](Case& c) { c.shape.tied = true; });
  kit("a parameter that requires no gradient stays so", [](Case& c) { c.shape.frozen = true; });
  kit("an evaluation between two steps changes nothing", [](Case& c) { c.evaluates = true; });
  kit("rows of several documents", [](Case& c) { c.rows.packed = c.several = true; });
  kit("sequence lengths that the ranks do not divide", [](Case& c) { c.rows.sequence = 7; });
  kit("with other data-parallel ranks", [](Case& c) { c.beside = true; });
  kit("the units of one stage of a pipeline", [](Case& c) { c.pipeline = true; });
  attempt.training(thing + "two runs are bitwise equal", [&] { return along.same_bits_twice(); });
}

}  // namespace

void run_parallelizer_kits(const OfferedParallelizer& offered, const std::filesystem::path& file, int ranks,
                           Attempts& attempt) {
  const std::string thing = "parallelizer '" + offered.name + "' on " + std::to_string(ranks) + " ranks";
  const std::vector<AxisInfo> axes = axes_of(offered);
  if (offered.needs.axes.empty()) return run_without_axis({offered, file, {}, ranks}, thing + ": ", attempt);
  if (axes.empty())
    attempt.training(thing + ": needs() names an axis with a key",
                     [&]() -> std::string { found("no run can set the size of one of its axes"); });
  for (const AxisInfo& axis : axes)
    run_along({offered, file, axis, ranks}, thing + (axes.size() == 1 ? "" : " of " + axis.name) + ": ",
              attempt);
}

}  // namespace heddle::kits

// Best-first search of layouts: a coarse estimate orders them, dry steps decide.
#include "lib/run/plan/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "lib/cost/mfu.h"
#include "lib/run/facts/run_facts.h"
#include "lib/run/plan/candidates.h"
#include "lib/run/plan/estimate.h"
#include "lib/run/preflight/preflight.h"
#include "lib/run/recipe/recipe.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

// Minimum row length in tokens for context parallelism, unless --fix sets its size.
constexpr int64_t kLongRow = 16384;
constexpr size_t kEnough = 10;          // layouts per table
constexpr size_t kTogether = 2;         // dry steps that run at the same time
constexpr double kFarBehind = 1.25;     // factor of the slowest layout in the table
constexpr double kCurious = 1.8;        // curiosity of Candidates::take() before any layout fits
constexpr int kMostMoves = 4;           // maximum number of layers moved one by one between stages
constexpr int64_t kRecordedPasses = 2;  // the first pass, and one that stands for all later ones

Preflight preflight_of(const Node& recipe, PluginRegistry& plugins, int world) {
  PreparationOptions preparation;
  preparation.make = false;
  return preflight(read_recipe(recipe, RecipeErrors::kept), plugins, world, Machine::another, preparation);
}

// Exports do not depend on the layout, and checking those of a model with many experts takes longer than a
// dry step.
Node without_export(const Node& recipe) {
  return config::with_override(recipe, "checkpoint.save_consolidated", "false");
}

class Search {
 public:
  Search(const PlanRequest& request, PluginRegistry& plugins)
      : request_(request),
        plugins_(plugins),
        machine_(with_even_nodes(request.machines.front().machine, request.world)) {}

  FoundLayouts run() {
    const Clock::time_point begin = Clock::now();
    FoundLayouts out;
    read_strategies(out);
    out.world = request_.world;
    out.row_length = row_length_;
    out.recipe_row_length = recipe_row_length_;
    out.global_batch = global_batch_;
    for (const MachinePart& part : request_.machines) {
      out.devices.push_back(part.machine.name);
      out.memory.push_back(part.machine.memory * request_.memory_share);
    }
    const int64_t before = out.layouts;
    Candidates candidates = all_candidates(out);
    if (out.layouts == before) throw no_layout();
    for (const MachinePart& part : request_.machines) check_figures(part.machine);
    check_precisions();
    while (!out.is_complete && std::chrono::duration<double>(Clock::now() - begin).count() < request_.seconds)
      out.is_complete = !try_next(candidates, out);
    std::stable_sort(out.fitting.begin(), out.fitting.end(), [](const auto& a, const auto& b) {
      return a.tokens_per_second() > b.tokens_per_second();
    });
    std::stable_sort(out.too_large.begin(), out.too_large.end(),
                     [](const auto& a, const auto& b) { return a.cost.peak < b.cost.peak; });
    if (!out.fitting.empty()) out.scaling = scaling_of(out.fitting.front().layout);
    return out;
  }

  LayoutDetails details(const Layout& layout) {
    FoundLayouts refusals;
    add_space(layout.strategy, refusals);
    const Preflight checked =
        preflight_of(with_layout(space_of(layout).layouts, layout), plugins_, request_.world);
    const StepPlan plan = step_plan(checked.setup, *checked.model, checked.recipe, checked.pipeline);
    LayoutDetails out;
    out.cost = step_cost(plan, plugins_, row_length_, request_.machines,
                         {kRecordedPasses, /*all_microbatches=*/false, /*with_timelines=*/true});
    std::vector<std::string> ignored;
    if (const auto sizes = sizes_if_known(plan, plugins_, ignored))
      out.optimizer = static_cast<double>(sizes->most.optimizer);
    return out;
  }

 private:
  // Figures of one strategy.
  struct Space {
    LayoutSpace layouts;
    StateBytes state;
  };

  const Space& space_of(const Layout& layout) const { return spaces_.at(layout.strategy); }

  // Adds the strategy of the recipe or of --fix; without either, the default and every exact strategy that
  // the recipe allows and that computes in the same dtype.
  void read_strategies(FoundLayouts& out) {
    const Node* const section = request_.recipe.find("distributed");
    const Node* const own = section != nullptr && section->is_map() ? section->find("strategy") : nullptr;
    for (const auto& [key, value] : request_.fixed)
      if (key == "strategy") return add_space(value, out);
    if (own != nullptr && !own->is_null()) return add_space("", out);
    add_space("", out);  // the default
    for (const std::string& name : plugins_.names("strategy")) try {
        const OfferedStrategy* const strategy = plugins_.strategy(name);
        const bool is_alias = strategy == nullptr || strategy->name != name;
        if (!is_alias && !strategy->needs.approximate && !spaces_.contains(name)) add_space(name, out);
      } catch (const Error& error) {
        ++out.layouts, ++out.refused[error.message()];
      }
  }

  // Returns the error of a search without layouts, which names a value of --fix that no layout has.
  Error no_layout() const {
    const std::string what =
        std::to_string(request_.world) + " ranks and " + std::to_string(global_batch_) + " samples per step";
    for (const auto& [key, value] : request_.fixed) {
      std::vector<std::string> values = possible_values(key);
      if (values.empty() || std::find(values.begin(), values.end(), text::lower(value)) != values.end())
        continue;
      std::erase(values, "");
      const std::string hint = !values.empty()      ? "give " + key + " one of " + text::join(values, ", ")
                               : key == "precision" ? "add --allow " + value
                               : key == "cp_method" ? "add --fix cp_size=2"
                                                    : "remove --fix " + key + "=" + value;
      return {ErrorCode::usage, "--fix", "no layout of " + what + " has " + key + "=" + value, hint};
    }
    if (request_.fixed.empty() || possible_values("tp_size").empty())
      return {ErrorCode::usage, "heddle plan",
              "no layout divides " + what +
                  ", with a sample for each replica and a microbatch for each pipeline stage",
              "change --world-size or step_scheduler.global_batch_size, or add --fix cp_size=2"};
    return {ErrorCode::usage, "--fix", "no layout of " + what + " has all values of --fix",
            "remove one of them"};
  }

  // Returns the values of a key in all layouts without --fix.
  std::vector<std::string> possible_values(const std::string& key) const {
    std::vector<std::string> out;
    for (const auto& [strategy, space] : spaces_) {
      LayoutSpace free = space.layouts;
      free.fixed.clear();
      for (const Layout& layout : all_layouts(free))
        for (const auto& [name, value] : layout.fields())
          if (name == key && std::find(out.begin(), out.end(), value) == out.end()) out.push_back(value);
    }
    return out;
  }

  // Refuses a machine without the figures that the time of a step needs.
  void check_figures(const MachineFile& machine) const {
    const char* const peak = c10::elementSize(dtype_) > 2 ? "peak_32" : "peak_16";
    const bool is_on_nodes = request_.world > machine.node_devices;
    for (const auto& [key, value, is_needed] :
         {std::tuple(peak, machine.peak(dtype_), true),
          std::tuple("memory_bandwidth", machine.memory_bandwidth, true),
          std::tuple("node_bandwidth", machine.node_bandwidth, request_.world > 1),
          std::tuple("network_bandwidth", machine.network_bandwidth, is_on_nodes)})
      if (is_needed && value <= 0)
        throw Error(ErrorCode::usage, "heddle plan",
                    "the machine file " + machine.name + " does not set " + key,
                    std::string("set ") + key + " in a file of --machine" +
                        (is_on_nodes ? " or, for the network, --network" : "") +
                        ", or measure the machine with heddle plan --measure");
  }

  // Refuses --allow for a device without products of 8-bit floats.
  void check_precisions() const {
    for (const MachinePart& part : request_.machines)
      if (!request_.allowed.empty() && part.machine.peak_8 <= 0)
        throw Error(ErrorCode::usage, "--allow",
                    "the machine file " + part.machine.name +
                        " does not set peak_8, so the device is not known to "
                        "multiply 8-bit floats",
                    "remove --allow " + request_.allowed.front() + ", or set peak_8 in a file of --machine");
  }

  // Reads the model and the fields of a strategy; "": that of the recipe. One rank fits any world, while the
  // recipe's own layout may not divide this one.
  void add_space(const std::string& strategy, FoundLayouts& found) {
    Space space;
    LayoutSpace& out = space.layouts;
    out.recipe = request_.recipe;
    out.global_batch = 1;
    Layout alone;
    alone.strategy = strategy;
    const Node plain = with_layout(out, alone);
    const Preflight checked = preflight_of(plain, plugins_, 1);
    if (!checked.model)
      throw Error(ErrorCode::usage, "heddle plan", "the model is not on this machine",
                  "use a model on this machine, or set its keys in model.config");
    recipe_row_length_ = row_length_of(checked);
    row_length_ = request_.row_length > 0 ? request_.row_length : recipe_row_length_;
    check_row_length(*checked.model, row_length_);
    if (row_length_ == 0)
      throw Error(ErrorCode::usage, "heddle plan",
                  "the row length of the data is unknown, because the data is not on this machine",
                  "give --row-length, or prepare the data with heddle prepare");
    const double unsplit = figures_.unsplit;
    figures_ = figures_of(*checked.model, row_length_);
    figures_.unsplit = unsplit;
    const c10::ScalarType dtype = product_dtype(checked.setup, checked.model->dtype);
    if (!spaces_.empty() && dtype != dtype_)
      throw Error(ErrorCode::usage, "heddle plan",
                  checked.setup.strategy + " computes in another dtype than the default strategy",
                  "set distributed.strategy");
    dtype_ = dtype;
    global_batch_ = checked.recipe.steps.global_batch_size;
    const auto has = [&](const char* field) { return checked.setup.strategy_config.find(field) != nullptr; };
    out.strategy = checked.setup.strategy;
    out.has_reshard = has("reshard_after_forward");
    out.has_deferral = has("defer_fsdp_grad_sync");
    out.has_sequence_parallel = has("sequence_parallel");
    out.has_replicas = std::any_of(checked.setup.axes.begin(), checked.setup.axes.end(),
                                   [](const Axis& axis) { return axis.name == "dp_replicate"; });
    measure_state(checked, plain, space);
    find_axes(out, found);
    out.world = request_.world;
    out.node_devices = machine_.node_devices;
    out.layers = figures_.layers;
    out.heads = figures_.heads;
    out.key_value_heads = figures_.key_value_heads;
    out.experts = figures_.experts;
    out.expert_width = figures_.expert_width;
    for (const std::string& section : request_.allowed)
      if (with_precision(request_.recipe, section) != request_.recipe) out.precisions.insert(section);
    out.row_length = row_length_;
    out.global_batch = global_batch_;
    out.fixed = request_.fixed;
    for (const auto& unit : checked.model->make()) out.units.emplace_back(unit->name());
    if (request_.machines.size() > 1)
      for (const MachinePart& part : request_.machines)
        out.ranks_of_kind = std::gcd(out.ranks_of_kind, part.ranks);
    spaces_[out.strategy] = std::move(space);
  }

  // Finds the axes that the strategy supports. A refusal counts once.
  void find_axes(LayoutSpace& space, FoundLayouts& found) {
    const auto allows = [&](int Layout::*size) {
      Layout layout{space.strategy};
      layout.*size = 2;
      layout.cp_method = "allgather";
      layout.schedule = "1f1b";
      LayoutSpace two = space;
      two.world = 2;
      try {
        Setup setup = engine::validate(with_layout(two, layout), plugins_, two.world);
        setup.backend = "gloo";  // the run's device may not be on this machine
        (void)engine::choose(setup, plugins_);
        return true;
      } catch (const Error& error) {
        if (error.code() == ErrorCode::config) throw;  // a value of the recipe is wrong
        ++found.layouts, ++found.refused[error.message()];
        return false;
      }
    };
    space.has_tp = allows(&Layout::tp);
    const bool tries_cp = row_length_ >= kLongRow ||
                          std::any_of(request_.fixed.begin(), request_.fixed.end(), [](const auto& fixed) {
                            return fixed.first == "cp_size" && fixed.second != "1";
                          });
    space.has_cp = tries_cp && allows(&Layout::cp);
    space.has_pp = allows(&Layout::pp);
  }

  // Measures parameters, gradients and optimizer state per rank on one and on two data-parallel ranks, to
  // tell replicated bytes from sharded bytes.
  void measure_state(const Preflight& checked, const Node& plain, Space& space) {
    std::vector<std::string> ignored;
    const auto sizes = [&](const Setup& setup) {
      return sizes_if_known(step_plan(setup, *checked.model, checked.recipe, std::nullopt), plugins_,
                            ignored);
    };
    const auto alone = sizes(checked.setup);
    std::optional<RankSizes> halves;
    try {
      halves = sizes(engine::validate(plain, plugins_, 2));
    } catch (const Error&) {
      halves = alone;  // one data-parallel rank has everything
    }
    if (!alone || !halves) return;
    figures_.unsplit = std::max(figures_.unsplit, unsplit_share(plain, alone->bytes(), sizes));
    space.state.divided = std::max(0.0, 2 * (alone->bytes() - halves->bytes()));
    space.state.whole = std::max(0.0, alone->bytes() - space.state.divided);
  }

  // Returns ModelFigures::unsplit from the bytes of a rank without and with two ranks of tensor parallelism.
  template <class Sizes>
  double unsplit_share(const Node& plain, double alone, const Sizes& sizes) const {
    try {
      const auto halves =
          sizes(engine::validate(config::with_override(plain, "distributed.tp_size", "2"), plugins_, 2));
      const double experts = figures_.of_experts / figures_.parameters;
      return halves ? std::clamp(2 * (halves->bytes() / alone - experts) / (1 - experts) - 1, 0.0, 1.0) : 0;
    } catch (const Error&) {
      return 0;  // refused
    }
  }

  // Predicts a layout on half, twice and four times the ranks, which change the data-parallel size alone.
  std::vector<ScaledLayout> scaling_of(const Layout& layout) {
    std::vector<ScaledLayout> out;
    if (request_.machines.size() > 1) return out;
    const int64_t replica = int64_t{layout.tp} * layout.cp * layout.pp;
    for (const double factor : {0.5, 2.0, 4.0}) {
      const auto world = static_cast<int64_t>(factor * request_.world);
      const int64_t dp = world / replica, samples = layout.rows * (layout.pp > 1 ? layout.pp : 1);
      if (world % replica != 0 || dp == 0 || dp % layout.dp_replicate != 0 || global_batch_ % dp != 0 ||
          global_batch_ / dp < samples || world * 2 < request_.world)
        continue;
      LayoutSpace space = space_of(layout).layouts;
      space.world = static_cast<int>(world);
      try {
        const StepCost cost = cost_of(with_layout(space, layout), space.world);
        if (fits(cost)) out.push_back({space.world, cost.tokens / cost.time.seconds});
      } catch (const Error&) {  // refused on this number of ranks
      }
    }
    return out;
  }

  Candidates all_candidates(FoundLayouts& out) const {
    Candidates candidates(machine_.memory * request_.memory_share);
    const double most = *std::max_element(out.memory.begin(), out.memory.end());
    for (const auto& [strategy, space] : spaces_) {
      const LayoutEstimate estimate{space.layouts, figures_, machine_, dtype_, space.state};
      for (Layout& layout : all_layouts(space.layouts)) {
        ++out.layouts;
        const double least = estimate.least_memory(layout);
        if (most > 0 && least > most) {
          if (out.bounded++ == 0 || least < out.smallest_bytes)
            out.smallest = layout, out.smallest_bytes = least;
          continue;
        }
        const double seconds = estimate.seconds(layout), memory = estimate.memory(layout);
        candidates.add(std::move(layout), seconds, memory);
      }
    }
    return candidates;
  }

  // Result of a dry step; `refusal`: the engine's error.
  struct Tried {
    Candidates::Candidate candidate;
    PlannedLayout planned;
    std::string refusal;
  };

  // Runs dry steps of the most promising layouts. Returns whether there were any: the search ends if enough
  // layouts fit and no remaining one is expected to come near them.
  bool try_next(Candidates& candidates, FoundLayouts& out) {
    std::vector<double> seconds;
    for (const PlannedLayout& one : out.fitting) seconds.push_back(one.cost.time.seconds);
    double most = std::numeric_limits<double>::infinity();
    if (seconds.size() >= kEnough) {
      std::nth_element(seconds.begin(), seconds.begin() + kEnough - 1, seconds.end());
      most = kFarBehind * seconds[kEnough - 1];
    }
    const double curiosity = std::pow(kCurious, 1 / (1 + static_cast<double>(out.fitting.size()) / kEnough));
    std::vector<std::future<Tried>> running;
    while (running.size() < kTogether)
      if (auto candidate = candidates.take(curiosity, most))
        running.push_back(std::async(std::launch::async, [this, one = std::move(*candidate)]() mutable {
          return tried(std::move(one));
        }));
      else
        break;
    for (std::future<Tried>& each : running) learn(each.get(), candidates, out);
    return !running.empty();
  }

  Tried tried(Candidates::Candidate candidate) {
    Tried out{std::move(candidate), {}, {}};
    out.planned.layout = out.candidate.layout;
    try {
      find_cost(out.planned);
      balance(out.planned);
    } catch (const Error& error) {
      out.refusal = error.message();
    }
    return out;
  }

  void learn(Tried tried, Candidates& candidates, FoundLayouts& out) const {
    if (!tried.refusal.empty()) {
      ++out.refused[tried.refusal];
      candidates.learn_refusal(tried.candidate);
      return;
    }
    PlannedLayout& planned = tried.planned;
    planned.fits = fits(planned.cost);
    candidates.learn(tried.candidate, planned.cost.time.seconds, planned.cost.peak);
    if (!planned.fits)
      candidates.drop([&](const Layout& layout) { return takes_at_least(layout, tried.candidate.layout); });
    (planned.fits ? out.fitting : out.too_large).push_back(std::move(planned));
  }

  // Whether a layout differs from another one only in settings that do not lower its memory.
  static bool takes_at_least(const Layout& layout, const Layout& less) {
    const auto weight = [](const Layout& of) {
      return of.recomputation == "none" ? 2 : of.recomputation == "selective" ? 1 : 0;
    };
    const auto shape = [](const Layout& of) {
      return std::tie(of.strategy, of.dp_replicate, of.tp, of.cp, of.cp_method, of.pp, of.ep, of.etp,
                      of.precision);
    };
    return shape(less) == shape(layout) && less.rows <= layout.rows &&
           less.virtual_stages <= layout.virtual_stages && weight(less) <= weight(layout) &&
           (less.reshards || !layout.reshards) && (!less.defers || layout.defers);
  }

  bool fits(const StepCost& cost) const {
    return cost.device_memory == 0 || cost.peak <= cost.device_memory * request_.memory_share;
  }

  void find_cost(PlannedLayout& planned) {
    const LayoutSpace& space = space_of(planned.layout).layouts;
    planned.recipe = with_layout(space, planned.layout);
    planned.cost = cost_of(planned.recipe, space.world);
  }

  StepCost cost_of(const Node& recipe, int world) {
    const Preflight checked = preflight_of(without_export(recipe), plugins_, world);
    return step_cost(step_plan(checked.setup, *checked.model, checked.recipe, checked.pipeline), plugins_,
                     row_length_, request_.machines, {kRecordedPasses, /*all_microbatches=*/false});
  }

  // Moves layers between stages on machines of several kinds: first in proportion to the measured speed of
  // each stage, then one by one from the slowest to the fastest stage while the step gets shorter.
  void balance(PlannedLayout& planned) {
    if (planned.layout.stage_layers.empty()) return;
    const auto try_split = [&](std::vector<int64_t> layers) {
      PlannedLayout other{planned.layout};
      other.layout.stage_layers = std::move(layers);
      try {
        find_cost(other);
      } catch (const Error&) {
        return false;  // the engine refuses this split
      }
      const bool is_better = fits(other.cost) != fits(planned.cost)
                                 ? fits(other.cost)
                                 : other.cost.time.seconds < planned.cost.time.seconds;
      if (is_better) planned = std::move(other);
      return is_better;
    };
    try_split(by_speed(planned));
    for (int moves = 0; moves < kMostMoves && try_split(with_one_moved(planned)); ++moves) {
    }
  }

  // Assigns each layer to the stage that then takes the least time.
  static std::vector<int64_t> by_speed(const PlannedLayout& planned) {
    const std::vector<int64_t>& now = planned.layout.stage_layers;
    std::vector<int64_t> out(now.size(), 1);
    int64_t left = std::accumulate(now.begin(), now.end(), int64_t{0}) - static_cast<int64_t>(now.size());
    for (; left > 0; --left) {
      size_t best = 0;
      double least = 0;
      for (size_t stage = 0; stage < out.size(); ++stage) {
        const double seconds = planned.cost.stage_seconds[stage] / static_cast<double>(now[stage]) *
                               static_cast<double>(out[stage] + 1);
        if (stage == 0 || seconds < least) best = stage, least = seconds;
      }
      ++out[best];
    }
    return out;
  }

  // Returns the layers with one moved from the slowest to the fastest stage.
  static std::vector<int64_t> with_one_moved(const PlannedLayout& planned) {
    const std::vector<double>& seconds = planned.cost.stage_seconds;
    std::vector<int64_t> out = planned.layout.stage_layers;
    const auto slowest = std::max_element(seconds.begin(), seconds.end()) - seconds.begin();
    const auto fastest = std::min_element(seconds.begin(), seconds.end()) - seconds.begin();
    if (out[slowest] > 1) --out[slowest], ++out[fastest];
    return out;
  }

  const PlanRequest& request_;
  PluginRegistry& plugins_;
  const MachineFile machine_;
  int64_t row_length_ = 0, recipe_row_length_ = 0;
  ModelFigures figures_;
  int64_t global_batch_ = 0;
  std::map<std::string, Space> spaces_;  // by strategy
  c10::ScalarType dtype_ = c10::kBFloat16;
};

}  // namespace

FoundLayouts search_layouts(const PlanRequest& request, PluginRegistry& plugins) {
  return Search(request, plugins).run();
}

LayoutDetails details_of(const PlanRequest& request, PluginRegistry& plugins, const Layout& layout) {
  return Search(request, plugins).details(layout);
}

std::string FoundLayouts::device() const {
  return text::join(devices, " and ");
}

std::map<std::string, double> LayoutDetails::memory() const {
  for (const RankTimeline& timeline : cost.timelines)
    if (timeline.rank == cost.stage) return timeline.peak_memory;
  return {};
}

}  // namespace heddle

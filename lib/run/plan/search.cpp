// Best-first search of layouts: a coarse estimate orders them, dry steps decide.
#include "lib/run/plan/search.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>
#include <tuple>

#include "heddle/base/error.h"
#include "lib/cost/mfu.h"
#include "lib/run/facts/run_facts.h"
#include "lib/run/preflight/preflight.h"
#include "lib/run/recipe/recipe.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kEnough = 10;          // layouts per table
constexpr double kLast = 1e6;           // factor that orders layouts that are likely too large last
constexpr double kFarBehind = 1.25;     // factor of the slowest layout in the table
constexpr double kUncertain = 2;        // the same factor for a layout whose shape was not tried
constexpr double kKernels = 60;         // kernels of a layer, forward and backward
constexpr double kExchanges = 8;        // collectives of a layer with tensor parallelism
constexpr int kMostMoves = 4;           // maximum number of layers moved one by one between stages
constexpr int64_t kRecordedPasses = 2;  // the first pass, and one that stands for all later ones
// Minimum activations that a layer keeps per token, in multiples of the hidden size. Without recomputation:
// inputs of linear layers and of attention. With full recomputation: the layer's input.
constexpr double kKeptOfLayer = 8, kKeptOfRecomputed = 1;

Preflight preflight_of(const Node& recipe, PluginRegistry& plugins, int world) {
  PreparationOptions preparation;
  preparation.make = false;
  return preflight(read_recipe(recipe, RecipeErrors::kept), plugins, world, Machine::another, preparation);
}

// Model figures for the estimate.
struct ModelFigures {
  double parameters = 0;  // number of elements
  double flops_per_token = 0;
  double hidden = 0;
  int64_t layers = 0, heads = 0, key_value_heads = 0, experts = 0;
};

int64_t number_of(const Node& keys, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const Node* value = keys.find(name); value != nullptr && value->kind() == Node::Kind::integer)
      return value->as_integer();
  return 0;
}

ModelFigures figures_of(const PreparedModel& model, int64_t row_length) {
  ModelFigures out;
  const Node keys = config::read_text(model.spec->config_json("bfloat16"), "config.json");
  out.hidden = static_cast<double>(number_of(keys, {"hidden_size", "n_embd"}));
  out.layers = number_of(keys, {"num_hidden_layers", "n_layer"});
  out.heads = number_of(keys, {"num_attention_heads", "n_head"});
  out.key_value_heads = number_of(keys, {"num_key_value_heads"});
  out.experts = number_of(keys, {"n_routed_experts", "num_experts", "num_local_experts"});
  out.flops_per_token = model.spec->flops_per_token(row_length);
  for (const auto& unit : model.make())
    for (const ParameterSlot& slot : unit->parameters())
      out.parameters += static_cast<double>(slot.tensor->numel());
  return out;
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
    out.global_batch = global_batch_;
    for (const MachinePart& part : request_.machines) {
      out.device += (out.device.empty() ? "" : " and ") + part.machine.name;
      out.memory = std::max(out.memory, part.machine.memory * request_.memory_share);
    }
    std::vector<Candidate> candidates;
    for (const auto& [strategy, space] : spaces_)
      for (Layout& layout : all_layouts(space.layouts)) {
        ++out.layouts;
        if (out.memory > 0 && least_memory(layout) > out.memory) {
          ++out.bounded;
          continue;
        }
        const double seconds = estimate(layout);
        candidates.push_back({std::move(layout), seconds});
      }
    if (out.layouts == 0)
      throw Error(ErrorCode::usage, "heddle plan",
                  "no layout divides " + std::to_string(request_.world) + " ranks and " +
                      std::to_string(global_batch_) + " samples per step" +
                      (request_.fixed.empty() ? "" : " with the values of --fix"),
                  "change --world-size or step_scheduler.global_batch_size");
    while (!candidates.empty() &&
           std::chrono::duration<double>(Clock::now() - begin).count() < request_.seconds) {
      const auto next = next_of(candidates, out);
      if (next == candidates.end()) break;
      const Candidate candidate = *next;
      candidates.erase(next);
      if (is_hopeless(candidate, out)) continue;
      try_layout(candidate, out);
    }
    std::stable_sort(out.fitting.begin(), out.fitting.end(), [](const auto& a, const auto& b) {
      return a.tokens_per_second() > b.tokens_per_second();
    });
    std::stable_sort(out.too_large.begin(), out.too_large.end(),
                     [](const auto& a, const auto& b) { return a.cost.peak < b.cost.peak; });
    if (!out.fitting.empty()) out.scaling = scaling_of(out.fitting.front().layout);
    return out;
  }

  LayoutDetails details(const PlannedLayout& layout) {
    add_space(layout.layout.strategy);
    LayoutDetails out;
    out.recipe = with_layout(space_of(layout.layout).layouts, layout.layout);
    const Preflight checked = preflight_of(out.recipe, plugins_, request_.world);
    const StepPlan plan = step_plan(checked.setup, *checked.model, checked.recipe, checked.pipeline);
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
    double whole = 0, divided = 0;  // bytes of parameters, gradients and optimizer state: replicated; sharded
  };

  const Space& space_of(const Layout& layout) const { return spaces_.at(layout.strategy); }

  // Adds the strategy of the recipe or of --fix; without either, every exact strategy that the recipe allows.
  void read_strategies(FoundLayouts& out) {
    const Node* const section = request_.recipe.find("distributed");
    const Node* const own = section != nullptr && section->is_map() ? section->find("strategy") : nullptr;
    for (const auto& [key, value] : request_.fixed)
      if (key == "strategy") return add_space(value);
    if (own != nullptr && !own->is_null()) return add_space("");
    add_space("");  // the default
    for (const std::string& name : plugins_.names("strategy")) try {
        const OfferedStrategy* const strategy = plugins_.strategy(name);
        const bool is_alias = strategy == nullptr || strategy->name != name;
        if (!is_alias && !strategy->needs.approximate && !spaces_.contains(name)) add_space(name);
      } catch (const Error& error) {
        ++out.layouts, ++out.refused[error.message()];
      }
  }

  // Reads the model and the fields of a strategy; "": that of the recipe. One rank fits any world, while the
  // recipe's own layout may not divide this one.
  void add_space(const std::string& strategy) {
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
    row_length_ = request_.row_length > 0                ? request_.row_length
                  : checked.dataset                      ? checked.dataset->length()
                  : checked.recipe.packed.rules.size > 0 ? checked.recipe.packed.rules.size
                  : checked.recipe.dataset               ? checked.recipe.dataset->sequence_length
                                                         : 0;
    if (row_length_ == 0)
      throw Error(ErrorCode::usage, "heddle plan",
                  "the row length of the data is unknown, because the data is not on this machine",
                  "give --row-length, or prepare the data with heddle prepare");
    figures_ = figures_of(*checked.model, row_length_);
    dtype_ = product_dtype(checked.setup, checked.model->dtype);
    global_batch_ = checked.recipe.steps.global_batch_size;
    const auto has = [&](const char* field) { return checked.setup.strategy_config.find(field) != nullptr; };
    out.strategy = checked.setup.strategy;
    out.has_reshard = has("reshard_after_forward");
    out.has_sequence_parallel = has("sequence_parallel");
    out.has_replicas = std::any_of(checked.setup.axes.begin(), checked.setup.axes.end(),
                                   [](const Axis& axis) { return axis.name == "dp_replicate"; });
    measure_state(checked, plain, space);
    out.world = request_.world;
    out.node_devices = machine_.node_devices;
    out.layers = figures_.layers;
    out.heads = figures_.heads;
    out.key_value_heads = figures_.key_value_heads;
    out.experts = figures_.experts;
    out.row_length = row_length_;
    out.global_batch = global_batch_;
    out.fixed = request_.fixed;
    for (const auto& unit : checked.model->make()) out.units.emplace_back(unit->name());
    if (request_.machines.size() > 1)
      for (const MachinePart& part : request_.machines)
        out.ranks_of_kind = std::gcd(out.ranks_of_kind, part.ranks);
    spaces_[out.strategy] = std::move(space);
  }

  // Measures parameters, gradients and optimizer state per rank on one and on two data-parallel ranks, to
  // tell replicated bytes from sharded bytes.
  void measure_state(const Preflight& checked, const Node& plain, Space& space) {
    std::vector<std::string> ignored;
    const auto sizes = [&](const Setup& setup) {
      return sizes_if_known(step_plan(setup, *checked.model, checked.recipe, std::nullopt), plugins_,
                            ignored);
    };
    const auto alone = sizes(checked.setup), halves = sizes(engine::validate(plain, plugins_, 2));
    if (!alone || !halves) return;
    space.divided = std::max(0.0, 2 * (alone->bytes() - halves->bytes()));
    space.whole = std::max(0.0, alone->bytes() - space.divided);
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
        const StepCost cost = cost_of(layout, space);
        if (fits(cost)) out.push_back({space.world, cost.tokens / cost.time.seconds});
      } catch (const Error&) {  // refused on this number of ranks
      }
    }
    return out;
  }

  struct Candidate {
    Layout layout;
    double seconds;  // estimated
  };
  // Layouts with equal shapes differ only in batch and recomputation.
  using Shape = std::tuple<std::string, int, int, int, int, int>;
  static Shape shape_of(const Layout& layout) {
    return {layout.strategy, layout.dp_replicate, layout.tp, layout.cp, layout.pp, layout.ep};
  }

  double expected(const Candidate& candidate) const {
    const auto found = corrections_.find(shape_of(candidate.layout));
    const double seconds =
        candidate.seconds * (found == corrections_.end() ? typical_correction() : found->second);
    return seconds * (is_likely_too_large(candidate.layout) ? kLast : 1);
  }

  // Scales the lower bound of memory by the smallest ratio that dry steps with the same recomputation showed.
  bool is_likely_too_large(const Layout& layout) const {
    const auto found = beyond_.find(layout.recomputation);
    const double memory = machine_.memory * request_.memory_share;  // of the first machine
    return found != beyond_.end() && memory > 0 && found->second * least_memory(layout) > memory;
  }

  double typical_correction() const {
    double logarithms = 0;
    for (const auto& [shape, correction] : corrections_) logarithms += std::log(correction);
    return corrections_.empty() ? 1 : std::exp(logarithms / static_cast<double>(corrections_.size()));
  }

  bool is_tried(const Candidate& candidate) const {
    return corrections_.contains(shape_of(candidate.layout));
  }

  // Returns the candidate that is expected to be fastest, or the end if enough layouts fit and no remaining
  // candidate is expected to come near them. The expected time of a shape that was not tried is less certain,
  // so such a candidate is tried up to a larger factor.
  std::vector<Candidate>::iterator next_of(std::vector<Candidate>& candidates,
                                           const FoundLayouts& out) const {
    const auto first = [&](bool only_untried) {
      auto best = candidates.end();
      for (auto one = candidates.begin(); one != candidates.end(); ++one)
        if (!(only_untried && is_tried(*one)) &&
            (best == candidates.end() || expected(*one) < expected(*best)))
          best = one;
      return best;
    };
    const auto next = first(/*only_untried=*/false);
    if (out.fitting.size() < kEnough || next == candidates.end()) return next;
    std::vector<double> seconds;
    for (const PlannedLayout& one : out.fitting) seconds.push_back(one.cost.time.seconds);
    std::nth_element(seconds.begin(), seconds.begin() + kEnough - 1, seconds.end());
    if (expected(*next) <= kFarBehind * seconds[kEnough - 1]) return next;
    const auto untried = first(/*only_untried=*/true);
    const bool is_near =
        untried != candidates.end() && expected(*untried) <= kUncertain * seconds[kEnough - 1];
    return is_near ? untried : candidates.end();
  }

  // Whether a layout of the same shape that keeps no more activations did not fit or was refused.
  bool is_hopeless(const Candidate& candidate, const FoundLayouts& out) const {
    const auto weight = [](const Layout& layout) {
      return layout.recomputation == "none" ? 2 : layout.recomputation == "selective" ? 1 : 0;
    };
    const Layout& layout = candidate.layout;
    return std::any_of(out.too_large.begin(), out.too_large.end(), [&](const PlannedLayout& other) {
      const Layout& less = other.layout;
      return shape_of(less) == shape_of(layout) && less.rows <= layout.rows &&
             less.virtual_stages <= layout.virtual_stages && weight(less) <= weight(layout) &&
             (less.reshards || !layout.reshards);
    });
  }

  void try_layout(const Candidate& candidate, FoundLayouts& out) {
    PlannedLayout planned{candidate.layout};
    try {
      planned.cost = cost_of(candidate.layout, space_of(candidate.layout).layouts);
      balance(planned);
    } catch (const Error& error) {
      ++out.refused[error.message()];
      return;
    }
    const double flops = figures_.flops_per_token * planned.tokens_per_second() / request_.world;
    if (machine_.peak(dtype_) > 0) planned.mfu = flops / machine_.peak(dtype_);
    planned.fits = fits(planned.cost);
    const double beyond = planned.cost.peak / std::max(1.0, least_memory(candidate.layout));
    const auto [found, is_first] = beyond_.try_emplace(candidate.layout.recomputation, beyond);
    if (!is_first) found->second = std::min(found->second, beyond);
    corrections_[shape_of(candidate.layout)] = planned.cost.time.seconds / candidate.seconds;
    (planned.fits ? out.fitting : out.too_large).push_back(std::move(planned));
  }

  bool fits(const StepCost& cost) const {
    return cost.device_memory == 0 || cost.peak <= cost.device_memory * request_.memory_share;
  }

  StepCost cost_of(const Layout& layout, const LayoutSpace& space) {
    const Preflight checked = preflight_of(with_layout(space, layout), plugins_, space.world);
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
        other.cost = cost_of(other.layout, space_of(other.layout).layouts);
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

  double ranks_of_parameters(const Layout& layout) const {
    return static_cast<double>(layout.tp) * layout.pp;
  }

  // Lower bound of memory on the rank of the first stage: parameters, gradients, optimizer state, and the
  // activations of its live microbatches.
  double least_memory(const Layout& layout) const {
    const int dp = request_.world / (layout.tp * layout.cp * layout.pp);
    const double split =
        ranks_of_parameters(layout) * (figures_.experts > 0 ? std::max(1, layout.ep / layout.tp) : 1);
    const Space& space = space_of(layout);
    const double held =
        (space.whole + space.divided / std::max(1, dp * layout.cp / layout.dp_replicate)) / split;
    const double kept = layout.recomputation == "full"   ? kKeptOfRecomputed
                        : layout.recomputation == "none" ? kKeptOfLayer
                                                         : kKeptOfRecomputed;
    const double layers = static_cast<double>(figures_.layers);
    const double activations = 2 * kept * static_cast<double>(layout.rows) *
                               static_cast<double>(row_length_) / layout.cp * figures_.hidden * layers /
                               layout.tp;
    return held + activations;
  }

  // Estimates computation at the machine's efficiency, the bubble, and the bytes of each kind of parallelism.
  // Only the order of estimates matters.
  double estimate(const Layout& layout) const {
    const LayoutSpace& space = space_of(layout).layouts;
    const int dp = request_.world / (layout.tp * layout.cp * layout.pp);
    const double tokens = static_cast<double>(space.global_batch) * static_cast<double>(row_length_);
    const double recomputed = layout.recomputation == "full"        ? 4.0 / 3
                              : layout.recomputation == "selective" ? 1.12
                                                                    : 1;
    const double rate = machine_.peak(dtype_) * machine_.efficiency(dtype_);
    double seconds = figures_.flops_per_token * tokens * recomputed / request_.world / std::max(rate, 1.0);
    const double own_tokens = tokens / dp / layout.cp, layers = static_cast<double>(figures_.layers);
    const double microbatches =
        static_cast<double>(space.global_batch) / dp / static_cast<double>(layout.rows);
    // Small microbatches use the device less efficiently.
    seconds *= 1 + 400 / (static_cast<double>(layout.rows * row_length_) / layout.cp);
    const double link = std::max(machine_.node_bandwidth, 1.0),
                 network = std::max(machine_.network_bandwidth, 1.0);
    if (layout.tp > 1)
      seconds += own_tokens * figures_.hidden * 2 * 4 * layers / layout.pp * recomputed / link;
    if (layout.pp > 1) seconds *= 1 + (layout.pp - 1) / (microbatches * layout.virtual_stages);
    if (layout.ep > 1)
      seconds += own_tokens * figures_.hidden * 2 * 4 * 6 * layers / layout.pp /
                 (layout.ep > machine_.node_devices ? network : link) / layout.tp;
    const double own = figures_.parameters / ranks_of_parameters(layout);
    const bool crosses = dp * layout.tp * layout.cp > machine_.node_devices;
    const double beside =
        crosses ? std::min(link, network * std::max<double>(1, machine_.node_devices / layout.tp)) : link;
    const double gathers = space.has_reshard && layout.pp == 1 && layout.reshards ? 2 * microbatches + 1 : 2;
    // Short kernels and short collectives take the time of their launches.
    const double own_layers = microbatches * layers / layout.pp * recomputed;
    seconds = std::max(seconds, own_layers * kKernels * machine_.launch_seconds);
    if (layout.tp > 1) seconds += own_layers * kExchanges * machine_.collective_seconds;
    // All-gathers overlap with computation; the longer of the two counts.
    if (dp > 1) seconds = std::max(seconds, own * 2 * gathers / beside) + 0.05 * own * 2 * gathers / beside;
    return seconds;
  }

  const PlanRequest& request_;
  PluginRegistry& plugins_;
  const MachineFile machine_;
  int64_t row_length_ = 0;
  ModelFigures figures_;
  int64_t global_batch_ = 0;
  std::map<std::string, Space> spaces_;  // by strategy
  c10::ScalarType dtype_ = c10::kBFloat16;
  std::map<Shape, double> corrections_;
  std::map<std::string, double> beyond_;  // by recomputation: smallest ratio of a peak to least_memory()
};

}  // namespace

FoundLayouts search_layouts(const PlanRequest& request, PluginRegistry& plugins) {
  return Search(request, plugins).run();
}

LayoutDetails details_of(const PlanRequest& request, PluginRegistry& plugins, const PlannedLayout& layout) {
  return Search(request, plugins).details(layout);
}

}  // namespace heddle

// Runs the kits of everything that a file offers, and of one strategy.
#include <algorithm>
#include <memory>
#include <optional>

#include "given_fields.h"
#include "kind_kits.h"
#include "lib/testing/whole_tensors.h"
#include "other_kits.h"
#include "plugin_kit.h"
#include "runs/parallelizer_kits.h"
#include "runs/ranks.h"
#include "strategy_kits.h"

namespace heddle::kits {
namespace {

// Returns the smallest number in the text of a range: "1 to 64", "at least 1".
std::string least_of(const std::string& range) {
  const size_t begin = range.find_first_of("0123456789");
  if (begin == range.npos) return "";
  return range.substr(begin, range.find_first_not_of("0123456789.", begin) - begin);
}

// Returns `fields` with the values that the kits need, if the strategy accepts them.
Node fields_for_kits(const OfferedStrategy& offered, Node fields) {
  std::vector<Node::Entry> entries = fields.entries();
  const auto add = [&](const std::string& key, const std::string& yaml) {
    if (fields.find(key) != nullptr) return;
    std::vector<Node::Entry> more = entries;
    more.emplace_back(key, config::read_text(yaml, "kit"));
    try {
      if (!offered.resolve(Node::map(more)).not_built.empty()) return;
    } catch (const Error&) {
      return;  // the strategy refuses this value and keeps its default
    }
    entries = std::move(more);
  };
  for (const FieldInfo& field : offered.fields) {
    if (field.key == "mp_policy") add(field.key, "{param_dtype: float32, reduce_dtype: float32}");
    if (field.key.find("bucket") == field.key.npos) continue;
    if (const std::string least = least_of(field.range); !least.empty()) add(field.key, least);
  }
  return Node::map(entries);
}

Subject subject_of(const OfferedStrategy& offered, const Node& fields) {
  const Node values = offered.resolve(fields).values;
  return {offered.name, offered.make(values)->needs(),
          [make = offered.make, values] { return make(values); }};
}

// Checks the declaration of an approximate strategy, and runs all kits with its exact fields.
void check_exact_mode(const OfferedStrategy& offered, const Node& fields, const Approximation& approximate,
                      const CheckedPlugin& plugin, Attempts& attempt) {
  const std::string thing = "strategy '" + offered.name + "': ";
  std::optional<Subject> exact;
  attempt(thing + "Needs::approximate: a tolerance, a reason, and fields of an exact mode", [&] {
    if (!(approximate.loss > 0 && approximate.loss < 1) || approximate.reason.empty())
      found("the tolerance is not between 0 and 1, or the reason is empty");
    if (approximate.exact.empty()) throw NotRun{"it has no exact mode"};
    const Node changed = config::read_text(approximate.exact, "Approximation::exact");
    Node all = fields;
    for (const auto& [key, value] : changed.entries()) all = all.with(key, value);
    exact = subject_of(offered, all);
    exact->fields = " with " + approximate.exact;
    if (exact->needs.approximate) {
      exact.reset();
      found("it is also approximate with " + approximate.exact);
    }
    return "losses may differ by " + written(approximate.loss) + ": " + approximate.reason;
  });
  if (!exact) return;
  for (const int ranks : plugin.options.ranks) run_strategy_kits(*exact, ranks, attempt);
}

template <class Offered>
const Offered& of(const OfferedSchema& offered) {
  return static_cast<const Offered&>(offered);
}

void check_strategy(const OfferedSchema& offered, const CheckedPlugin& plugin, Attempts& attempt) {
  const auto& strategy = of<OfferedStrategy>(offered);
  run_schema_kits("strategy", strategy, attempt);
  if (!run_needs_kits(strategy, attempt)) return;
  const Node fields = fields_for_kits(strategy, fields_of(offered, plugin));
  const Subject subject = subject_of(strategy, fields);
  for (const int ranks : plugin.options.ranks) run_strategy_kits(subject, ranks, attempt);
  if (subject.needs.approximate)
    check_exact_mode(strategy, fields, *subject.needs.approximate, plugin, attempt);
}

void check_parallelizer(const OfferedSchema& offered, const CheckedPlugin& plugin, Attempts& attempt) {
  const auto& parallelizer = of<OfferedParallelizer>(offered);
  run_schema_kits("parallelizer", parallelizer, attempt);
  for (const int ranks : plugin.options.ranks)
    if (ranks > 1) run_parallelizer_kits(parallelizer, plugin.file, ranks, attempt);
}

const KindKits kStrategy(OfferedStrategy::kKind, check_strategy);
const KindKits kParallelizer(OfferedParallelizer::kKind, check_parallelizer, {.takes_fields = false});
const KindKits kSection(OfferedSection::kKind,
                        [](const OfferedSchema& offered, const CheckedPlugin&, Attempts& attempt) {
                          run_schema_kits("section", offered, attempt);
                        },
                        {.trains = false, .takes_fields = false});
const KindKits kPlan(OfferedPlan::kKind,
                     [](const OfferedSchema& offered, const CheckedPlugin&, Attempts& attempt) {
                       run_plan_kits(of<OfferedPlan>(offered), attempt);
                     },
                     {.trains = false, .takes_fields = false});
const KindKits kSchedule(OfferedSchedule::kKind,
                         [](const OfferedSchema& offered, const CheckedPlugin& plugin, Attempts& attempt) {
                           run_schedule_kits(of<OfferedSchedule>(offered), plugin.file, plugin.options.ranks,
                                             attempt);
                         },
                         {.takes_fields = false});
const KindKits kDevice(OfferedDevice::kKind,
                       [](const OfferedSchema& offered, const CheckedPlugin&, Attempts& attempt) {
                         run_device_kits(of<OfferedDevice>(offered), attempt);
                       },
                       {.takes_fields = false, .on_device = false});

// Starts the device and returns its product name or its index.
std::string starts(const CheckDevice& device) {
  const std::unique_ptr<IDevice> one = device.make();
  const std::string place = one->start(0).str();
  one->synchronize();
  return one->name().empty() ? place : one->name();
}

void run_kits(const std::filesystem::path& file, Watch& watch) {
  PluginRegistry registry{{}};
  Attempts attempt(watch);
  plugin::PluginManifest manifest;
  if (!run_file_kits(file, registry, manifest, attempt)) return;
  attempt.names(manifest.name);
  const CheckedPlugin plugin{file, manifest, registry, watch.options};
  check_given_fields(plugin);
  if (const CheckDevice* device = check_device())
    if (!attempt("models are trained on the device '" + device->name() + "'", [&] {
          const auto& offers = manifest.offers;
          if (std::none_of(offers.begin(), offers.end(),
                           [](const auto& offer) { return KindKits::trains_on_device(offer.kind); }))
            throw NotRun{"no kit of this file's offers uses a device"};
          return starts(*device);
        }))
      return;
  for (const plugin::ManifestOffer& offer : manifest.offers)
    KindKits::run(offer.kind, *registry.find(offer.kind, offer.name), plugin, attempt);
}

}  // namespace

Report check_plugin(const std::filesystem::path& file, const KitOptions& options) {
  // Comes first, because LibTorch decides at its first use that there is no device.
  const auto device = options.device ? std::make_shared<const CheckDevice>(*options.device) : nullptr;
  return run_watched(options, [file, device] {
    Watch::current()->device = device;
    run_kits(file, *Watch::current());
  });
}

Report check_strategy(const std::string& section, PluginRegistry& plugins, const std::vector<int>& ranks) {
  const Node words = config::read_text("{" + section + "}", "section");
  const Node* name = words.find("strategy");
  const OfferedStrategy* offered = name == nullptr ? nullptr : plugins.strategy(name->as_text());
  if (offered == nullptr) throw plugins.missing("strategy", name == nullptr ? "" : name->as_text());
  const Subject subject = subject_of(*offered, fields_for_kits(*offered, words.without("strategy")));
  return run_watched({}, [subject, ranks] {
    Attempts attempt(*Watch::current());
    attempt.begin_offer("strategy '" + subject.name + "'");
    for (const int each : ranks) run_strategy_kits(subject, each, attempt);
  });
}

}  // namespace heddle::kits

extern "C" HEDDLE_API void heddle_run_kits(const std::filesystem::path& file,
                                           const heddle::kits::KitOptions& options,
                                           heddle::kits::Report& report) {
  report = heddle::kits::check_plugin(file, options);
}

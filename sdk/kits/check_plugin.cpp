// The kits of all that a file offers, and of one strategy.
#include <algorithm>

#include "heddle/base/text.h"
#include "model/model_kits.h"
#include "other_kits.h"
#include "plugin_kit.h"
#include "runs/parallelizer_kits.h"
#include "strategy_kits.h"

namespace heddle::kits {
namespace {

// The least value that a range's text names: "1 to 64", "at least 1".
std::string least_of(const std::string& range) {
  const size_t begin = range.find_first_of("0123456789");
  if (begin == range.npos) return "";
  return range.substr(begin, range.find_first_not_of("0123456789.", begin) - begin);
}

// `fields` with the values that the kits need, where the strategy takes them.
Node fields_for_kits(const OfferedStrategy& offered, Node fields) {
  std::vector<Node::Entry> entries = fields.entries();
  const auto add = [&](const std::string& key, const std::string& yaml) {
    if (fields.find(key) != nullptr) return;
    std::vector<Node::Entry> more = entries;
    more.emplace_back(key, config::read_text(yaml, "kit"));
    try {
      if (!offered.resolve(Node::map(more)).not_built.empty()) return;
    } catch (const Error&) {
      return;  // the strategy refuses this value: it keeps its default
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

class PluginKits {
 public:
  PluginKits(const std::filesystem::path& file, Watch& watch)
      : file_(file), options_(watch.options), attempt_(watch) {}

  void run() {
    plugin::PluginManifest manifest;
    if (!run_file_kits(file_, registry_, manifest, attempt_)) return;
    attempt_.names(manifest.name);
    for (const plugin::ManifestOffer& offer : manifest.offers)
      if (offer.kind == "model") {
        const std::vector<FieldInfo>& fields = registry_.model(offer.name)->fields;
        tables_.insert(tables_.end(), fields.begin(), fields.end());
      }
    for (const plugin::ManifestOffer& offer : manifest.offers) {
      if (offer.kind == "strategy") strategy(*registry_.strategy(offer.name));
      if (offer.kind == "parallelizer") parallelizer(*registry_.parallelizer(offer.name));
      if (offer.kind == "section") run_schema_kits("section", *registry_.section(offer.name), attempt_);
      if (offer.kind == "plan") run_plan_kits(*registry_.plan(offer.name), attempt_);
      if (offer.kind == "schedule")
        run_schedule_kits(*registry_.schedule(offer.name), file_, options_.ranks, attempt_);
      if (offer.kind == "model") model(*registry_.model(offer.name));
      if (offer.kind == "device") run_device_kits(*registry_.device(offer.name), attempt_);
    }
  }

 private:
  void strategy(const OfferedStrategy& offered) {
    run_schema_kits("strategy", offered, attempt_);
    if (!run_needs_kits(offered, attempt_)) return;
    const Node given = config::read_text(options_.fields, "fields");
    const Subject subject = subject_of(offered, fields_for_kits(offered, given));
    for (const int ranks : options_.ranks) run_strategy_kits(subject, ranks, attempt_);
  }

  void model(const OfferedModel& offered) {
    const Node given = config::read_text(options_.fields, "fields");
    run_model_kits(offered, tables_, given.is_map() ? given : Node::map({}), file_, attempt_);
  }

  void parallelizer(const OfferedParallelizer& offered) {
    run_schema_kits("parallelizer", offered, attempt_);
    for (const int ranks : options_.ranks)
      if (ranks > 1) run_parallelizer_kits(offered, file_, ranks, attempt_);
  }

  std::filesystem::path file_;
  const KitOptions& options_;
  PluginRegistry registry_{{}};
  Attempts attempt_;
  std::vector<FieldInfo> tables_;  // of all models
};

}  // namespace

Report check_plugin(const std::filesystem::path& file, const KitOptions& options) {
  return run_watched(options, [file] { PluginKits(file, *Watch::current()).run(); });
}

Report check_strategy(const std::string& section, PluginRegistry& plugins, const std::vector<int>& ranks) {
  const Node words = config::read_text("{" + section + "}", "section");
  const Node* name = words.find("strategy");
  const OfferedStrategy* offered = name == nullptr ? nullptr : plugins.strategy(name->as_text());
  if (offered == nullptr) throw plugins.missing("strategy", name == nullptr ? "" : name->as_text());
  const Subject subject = subject_of(*offered, fields_for_kits(*offered, words.without("strategy")));
  return run_watched({}, [subject, ranks] {
    Attempts attempt(*Watch::current());
    for (const int each : ranks) run_strategy_kits(subject, each, attempt);
  });
}

}  // namespace heddle::kits

extern "C" HEDDLE_API void heddle_run_kits(const std::filesystem::path& file,
                                           const heddle::kits::KitOptions& options,
                                           heddle::kits::Report& report) {
  report = heddle::kits::check_plugin(file, options);
}

// The rules that can be checked on an offer, each with its message.
#include "core/plugin/inspection.h"

#include <algorithm>
#include <set>

#include "core/parallel/features.h"
#include "heddle/base/text.h"

namespace heddle::plugin {
namespace {

class Inspector {
 public:
  Inspector(const PluginManifest& manifest, const Author& author) : manifest_(manifest), author_(author) {}

  [[noreturn]] void refuse(const std::string& why, const std::string& hint) const {
    throw Error(ErrorCode::plugin_failed, author_.file.string(),
                "invalid plugin '" + author_.name + "' " + author_.version + ": " + why, hint);
  }

  // Names: each once, and each in the manifest.
  void name(const std::string& kind, const std::string& name, const std::vector<std::string>& aliases) {
    const std::string thing = "the " + kind + " '" + name + "'";
    if (!seen_.insert(kind + " " + text::lower(name)).second)
      refuse("it offers " + thing + " twice", "offer it once");
    const auto paper =
        std::find_if(manifest_.offers.begin(), manifest_.offers.end(),
                     [&](const ManifestOffer& offer) { return offer.kind == kind && offer.name == name; });
    if (paper == manifest_.offers.end())
      refuse("it offers " + thing + ", but its manifest does not",
             "write \"" + kind + " " + name + "\" in HEDDLE_PLUGIN");
    if (!aliases.empty() &&
        std::set(aliases.begin(), aliases.end()) != std::set(paper->aliases.begin(), paper->aliases.end()))
      refuse("the aliases of " + thing + " are '" + text::join(aliases) + "', and in its manifest '" +
                 text::join(paper->aliases) + "'",
             "write them in HEDDLE_PLUGIN only");
    for (const std::string& alias : paper->aliases)
      if (!seen_.insert(kind + " " + text::lower(alias)).second)
        refuse("'" + alias + "' names two things of the kind " + kind, "give each its own words");
  }

  void the_whole_manifest() const {
    for (const ManifestOffer& offer : manifest_.offers)
      if (!seen_.contains(offer.kind + " " + text::lower(offer.name)))
        refuse("its manifest declares the " + offer.kind + " '" + offer.name + "', which it does not offer",
               "offer it in the body of HEDDLE_PLUGIN, or take it out of the manifest");
  }

  void fields(const std::string& kind, const OfferedSchema& offered) const {
    const std::string thing = "the " + kind + " '" + offered.name + "'";
    for (const FieldInfo& field : offered.fields) {
      if (field.key.empty() || field.type.empty())
        refuse("a field of " + thing + " has no key or no type", "name it in the schema");
      if (field.help.empty())
        refuse("the field '" + field.key + "' of " + thing + " has no help",
               "say in the schema what it does");
    }
  }

  void schema(const std::string& kind, const OfferedSchema& offered) const {
    fields(kind, offered);
    const std::string thing = "the " + kind + " '" + offered.name + "'";
    if (!offered.resolve) refuse(thing + " has no schema", "pass a ConfigSchema when you offer it");
    defaults(thing, offered);
  }

  void needs(const std::string& thing, const Needs& needs) const {
    AxisTable table;
    try {
      table.add(needs.new_axes, needs.new_views, thing);
    } catch (const Error& error) {
      refuse(error.message(), error.hint());
    }
    std::set<std::string> axes;
    for (const std::string& axis : needs.axes) {
      if (!axes.insert(axis).second)
        refuse(thing + " needs the axis '" + axis + "' twice", "list each axis once");
      known_axis(thing, axis, table);
    }
    for (const std::string& word : needs.may_use)
      if (std::find(kFeatures.begin(), kFeatures.end(), word) == kFeatures.end())
        refuse(
            thing + " may use '" + word + "', and core has no such feature",
            "words of may_use: " + text::join(std::vector<std::string>(kFeatures.begin(), kFeatures.end())));
    for (const std::string& axis : needs.after) known_axis(thing, axis, table);
    for (const Refusal& refusal : needs.refuses) {
      known_axis(thing, refusal.axis, table);
      if (refusal.text.empty())
        refuse(thing + " refuses the axis '" + refusal.axis + "' without a word", "say why in Refusal::text");
    }
    if (needs.sizes_rule) guarded(author_, "checked sizes", [&] { return needs.sizes_rule(Sizes{}); });
  }

  // An axis is declared by the parallelizer that splits along it.
  void no_axes(const std::string& thing, const Needs& needs) const {
    if (!needs.new_axes.empty() || !needs.new_views.empty() || !needs.after.empty())
      refuse(thing + " sets new_axes, new_views or after, which are fields of a parallelizer's needs",
             "offer a parallelizer that has them");
  }

  template <class Make>
  void maker(const std::string& thing, const Make& make, const std::string& not_built) const {
    if (!make && not_built.empty()) refuse(thing + " has no maker", "offer a class that can be made");
  }

 private:
  void known_axis(const std::string& thing, const std::string& axis, const AxisTable& table) const {
    std::vector<std::string> known;
    for (const AxisInfo& info : table.axes())
      if (info.kind != AxisKind::joined) known.push_back(info.name);
    if (std::find(known.begin(), known.end(), axis) != known.end()) return;
    refuse(thing + " names the axis '" + axis + "', which the engine does not know",
           "use " + text::join(known) + ", or declare it in a parallelizer");
  }

  // The defaults, written and read again, must be allowed and stay the same.
  void defaults(const std::string& thing, const OfferedSchema& offered) const {
    try {
      const Node values = offered.resolve(Node::map({})).values;
      if (!(offered.resolve(values).values == values))
        refuse("the defaults of " + thing + " change when they are written and read again",
               "let FieldType<T>::read and write agree");
    } catch (const Error& error) {
      if (error.code() == ErrorCode::plugin_failed) throw;
      refuse("the schema of " + thing + " does not allow its own defaults: " + error.message(),
             "give the struct initialisers that are inside the ranges and rules");
    } catch (...) {
      guarded(author_, "read the defaults of " + thing, [] { throw; });
    }
  }

  const PluginManifest& manifest_;
  const Author& author_;
  std::set<std::string> seen_;
};

}  // namespace

void inspect(const Offer& offer, const PluginManifest& manifest, const Author& author) {
  Inspector inspector(manifest, author);
  const auto look = [&](const std::string& kind, const auto& all) {
    for (const auto& offered : all) {
      const std::string thing = "the " + kind + " '" + offered.name + "'";
      inspector.name(kind, offered.name, offered.aliases);
      using Offered = std::decay_t<decltype(offered)>;
      if constexpr (std::is_same_v<Offered, OfferedModel>)
        inspector.fields(kind, offered);
      else if constexpr (!std::is_same_v<Offered, OfferedSchedule> && !std::is_same_v<Offered, OfferedDevice>)
        inspector.schema(kind, offered);
      if constexpr (requires { offered.needs; }) inspector.needs(thing, offered.needs);
      if constexpr (std::is_same_v<Offered, OfferedStrategy>) inspector.no_axes(thing, offered.needs);
      if constexpr (requires { offered.make; }) inspector.maker(thing, offered.make, offered.not_built);
    }
  };
  if (offer.strategies().empty() && offer.parallelizers().empty() && offer.schedules().empty() &&
      offer.sections().empty() && offer.devices().empty() && offer.plans().empty() && offer.models().empty())
    inspector.refuse("it offers nothing", "call plugin.strategy<...>(...) in the body of HEDDLE_PLUGIN");
  look("strategy", offer.strategies());
  look("parallelizer", offer.parallelizers());
  look("schedule", offer.schedules());
  look("section", offer.sections());
  look("device", offer.devices());
  look("plan", offer.plans());
  look("model", offer.models());
  inspector.the_whole_manifest();
}

}  // namespace heddle::plugin

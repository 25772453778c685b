// Checks of files, schemas and needs.
#include "plugin_kit.h"

#include "heddle/base/text.h"
#include "lib/testing/whole_tensors.h"

namespace heddle::kits {
namespace {

std::string load(const std::filesystem::path& file, PluginRegistry& registry) {
  return text::join(registry.load(file.string()).offers);
}

std::string refuses_twice(const std::filesystem::path& file, PluginRegistry& registry) {
  try {
    registry.load(file.string());
  } catch (const Error& error) {
    if (error.code() == ErrorCode::plugin_conflict) return "";
    throw;
  }
  found("the second load was accepted");
}

std::string refuses_unknown_keys(const OfferedSchema& offered) {
  try {
    (void)offered.resolve(Node::map({{"no_such_key_at_all", Node::integer(1)}}));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::config) return "";
    throw;
  }
  found("the section {no_such_key_at_all: 1} was accepted");
}

std::string same_needs(const OfferedStrategy& offered) {
  const Node defaults = offered.resolve(Node::map({})).values;
  const auto one = offered.make(defaults), two = offered.make(defaults);
  if (one->needs().axes != two->needs().axes || one->needs().axes != offered.needs.axes)
    found("needs() differs between two strategies with the same fields");
  return "mesh " + text::join(offered.needs.axes);
}

}  // namespace

bool run_file_kits(const std::filesystem::path& file, PluginRegistry& registry,
                   plugin::PluginManifest& manifest, Attempts& attempt) {
  const bool readable = attempt("the manifest is readable", [&] {
    manifest = plugin::read_manifest(file);
    return manifest.name + " " + manifest.version;
  });
  if (!readable) return false;
  const bool fits = attempt("the ABI tag is this engine's", [&] {
    plugin::check_abi(manifest, file);
    return manifest.abi;
  });
  if (!fits) return false;
  if (!attempt("the registry accepts all that the plugin offers", [&] { return load(file, registry); }))
    return false;
  attempt("the same file is refused a second time", [&] { return refuses_twice(file, registry); });
  attempt("another registry of this process accepts it too", [&] {
    PluginRegistry other({});
    return load(file, other);
  });
  return true;
}

void run_schema_kits(const std::string& kind, const OfferedSchema& offered, Attempts& attempt) {
  const std::string thing = kind + " '" + offered.name + "': ";
  attempt(thing + "every field has a type, a default and a help", [&] {
    for (const FieldInfo& field : offered.fields)
      if (field.type.empty() || field.help.empty() || field.default_value.empty())
        found("the field '" + field.key + "' lacks a type, a default or a help");
    return std::to_string(offered.fields.size()) + " fields";
  });
  attempt(thing + "an unknown key is refused", [&] { return refuses_unknown_keys(offered); });
}

bool run_needs_kits(const OfferedStrategy& offered, Attempts& attempt) {
  const std::string thing = "strategy '" + offered.name + "': ";
  attempt(thing + "needs() names the axes of its mesh", [&] {
    if (offered.needs.axes.empty()) found("its needs name no axis of the mesh");
    return text::join(offered.needs.axes);
  });
  if (!offered.make)
    return attempt(thing + "is built", [&]() -> std::string { throw NotRun{offered.not_built}; }), false;
  attempt(thing + "needs() depends only on the fields", [&] { return same_needs(offered); });
  return true;
}

}  // namespace heddle::kits

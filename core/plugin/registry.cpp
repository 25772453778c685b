// Finds plugins by their manifest, opens what is asked for, and keeps what was admitted.
#include "heddle/plugin/registry.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <set>

#include "core/parallel/single.h"
#include "core/plugin/admission.h"
#include "core/plugin/kinds.h"
#include "core/plugin/library.h"
#include "core/plugin/search_path.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/base/version.h"

namespace heddle {
namespace {

using plugin::FoundFile;
using plugin::ManifestOffer;
using plugin::PluginManifest;

// The admitted offers of one file.
struct Member {
  PluginInfo info;
  PluginManifest manifest;
  plugin::AdmittedPlugin admitted;
};

// The engine's own strategy and schedule, a member like any other.
Member built_in() {
  Member member;
  member.manifest = {std::string(plugin::abi_tag()),
                     "single",
                     HEDDLE_VERSION,
                     {{{"strategy", "single", {}}}, {{"schedule", "single", {}}}}};
  member.info = {"single", HEDDLE_VERSION, {}, {"strategy single", "schedule single"}};
  for (OfferedThing& one : plugin::offered_by_engine()) member.admitted.push_back(std::move(one));
  return member;
}

bool is_file_name(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".so");
}

std::string described(const PluginInfo& info) {
  return info.path.empty() ? "the engine itself" : "'" + info.path.string() + "'";
}

}  // namespace

struct PluginRegistry::Impl {
  std::vector<std::filesystem::path> search_path;
  Log log;
  std::vector<FoundFile> files;
  std::deque<Member> members;  // addresses stay
  std::recursive_mutex mutex;  // ranks as threads may share a registry

  const PluginInfo& load_file(const std::filesystem::path& file);
  const PluginInfo& load_found(const std::vector<const FoundFile*>& found, std::string_view kind,
                               std::string_view name);
  const PluginInfo& admit(const PluginManifest& manifest, const std::filesystem::path& file);
  void refuse_conflicts(const PluginManifest& manifest, const std::filesystem::path& file) const;
  void warn_of_hidden(const PluginInfo& taken, std::string_view kind, std::string_view name) const;
  std::vector<std::string> every_name(std::string_view kind) const;

  const OfferedSchema* of_members(std::string_view kind, std::string_view name) const;
};

const PluginInfo& PluginRegistry::Impl::load_file(const std::filesystem::path& file) {
  std::error_code failure;
  if (!std::filesystem::is_regular_file(file, failure))
    throw Error(ErrorCode::plugin_missing, file.string(), "there is no such plugin file",
                "give the path of a libheddle_*.so; a relative path starts at the working directory");
  const std::filesystem::path real = std::filesystem::canonical(file);
  for (const Member& member : members)
    if (!member.info.path.empty() && std::filesystem::canonical(member.info.path, failure) == real)
      throw Error(
          ErrorCode::plugin_conflict, file.string(),
          "the plugin '" + member.info.name + "' is loaded already, from '" + member.info.path.string() + "'",
          "name it once");
  const PluginInfo& info = admit(plugin::read_manifest(file), file);
  for (const ManifestOffer& offer : members.back().manifest.offers)
    warn_of_hidden(info, offer.kind, offer.name);
  return info;
}

const PluginInfo& PluginRegistry::Impl::load_found(const std::vector<const FoundFile*>& found,
                                                   std::string_view kind, std::string_view name) {
  const FoundFile& first = *found.front();
  if (first.unreadable) throw *first.unreadable;
  if (found.size() > 1 && found[1]->place == first.place)
    throw Error(ErrorCode::plugin_conflict, first.path.string(),
                "the " + std::string(kind) + " '" + std::string(name) + "' is offered by two plugins: '" +
                    first.path.string() + "' and '" + found[1]->path.string() + "'",
                "remove one of them, or give the other place under 'plugins:'");
  const PluginInfo& info = admit(*first.manifest, first.path);
  warn_of_hidden(info, kind, name);
  return info;
}

// Other files in the search path that have the name too.
void PluginRegistry::Impl::warn_of_hidden(const PluginInfo& taken, std::string_view kind,
                                          std::string_view name) const {
  std::error_code failure;
  for (const FoundFile* hidden : plugin::find(files, kind, name))
    if (!std::filesystem::equivalent(hidden->path, taken.path, failure))
      log.warning("plugin", "'" + taken.path.string() + "' hides '" + hidden->path.string() +
                                "', which offers the " + std::string(kind) + " '" + std::string(name) +
                                "' too");
}

// Two plugins of one name or alias are refused before the second is opened.
void PluginRegistry::Impl::refuse_conflicts(const PluginManifest& manifest,
                                            const std::filesystem::path& file) const {
  const auto refuse = [&](const std::string& what, const Member& member) {
    throw Error(ErrorCode::plugin_conflict, file.string(),
                what + " is there already, from " + described(member.info) + "; it cannot come from '" +
                    file.string() + "' too",
                "use one of the two, or rename one");
  };
  for (const Member& member : members) {
    if (text::lower(member.manifest.name) == text::lower(manifest.name))
      refuse("the plugin '" + manifest.name + "'", member);
    for (const ManifestOffer& theirs : member.manifest.offers) {
      for (const ManifestOffer& ours : manifest.offers) {
        if (ours.kind != theirs.kind) continue;
        if (theirs.answers_to(ours.name)) refuse("the " + ours.kind + " '" + ours.name + "'", member);
        for (const std::string& alias : ours.aliases)
          if (theirs.answers_to(alias)) refuse("the " + ours.kind + " '" + alias + "'", member);
      }
    }
  }
}

const PluginInfo& PluginRegistry::Impl::admit(const PluginManifest& manifest,
                                              const std::filesystem::path& file) {
  plugin::check_abi(manifest, file);
  refuse_conflicts(manifest, file);
  const Author author{manifest.name, manifest.version, file};
  const Offer offer = plugin::open(manifest, file);
  plugin::inspect(offer, manifest, author);
  Member member{{manifest.name, manifest.version, file, {}}, manifest, plugin::take(offer, manifest, author)};
  for (const ManifestOffer& paper : manifest.offers) member.info.offers.push_back(paper.text());
  members.push_back(std::move(member));
  log.debug("plugin", "loaded " + manifest.name + " " + manifest.version + " from " + file.string());
  return members.back().info;
}

std::vector<std::string> PluginRegistry::Impl::every_name(std::string_view kind) const {
  std::set<std::string> out;
  const auto collect = [&](const PluginManifest& manifest) {
    if (kind == "plugin") out.insert(manifest.name);
    for (const ManifestOffer& offer : manifest.offers) {
      if (offer.kind != kind) continue;
      out.insert(offer.name);
      out.insert(offer.aliases.begin(), offer.aliases.end());
    }
  };
  for (const Member& member : members)
    if (!member.info.path.empty()) collect(member.manifest);
  for (const FoundFile& file : files)
    if (file.manifest) collect(*file.manifest);
  return {out.begin(), out.end()};
}

PluginRegistry::PluginRegistry(std::vector<std::filesystem::path> search_path, Log log) {
  impl_ = std::make_unique<Impl>();
  impl_->search_path = std::move(search_path);
  impl_->log = std::move(log);
  impl_->files = plugin::scan(impl_->search_path);
  impl_->members.push_back(built_in());
}
PluginRegistry::~PluginRegistry() = default;
PluginRegistry::PluginRegistry(PluginRegistry&&) noexcept = default;
PluginRegistry& PluginRegistry::operator=(PluginRegistry&&) noexcept = default;

const PluginInfo& PluginRegistry::load(const std::string& file_or_name) {
  const std::lock_guard lock(impl_->mutex);
  if (is_file_name(file_or_name)) return impl_->load_file(file_or_name);
  for (const Member& member : impl_->members)
    if (text::lower(member.info.name) == text::lower(file_or_name)) return member.info;
  const auto found = plugin::find(impl_->files, "plugin", file_or_name);
  if (found.empty()) throw missing("plugin", file_or_name);
  return impl_->load_found(found, "plugin", file_or_name);
}

const OfferedSchema* PluginRegistry::Impl::of_members(std::string_view kind, std::string_view name) const {
  for (const Member& one : members)
    if (const OfferedSchema* offered = plugin::answering(one.admitted, kind, name)) return offered;
  return nullptr;
}

// Among the members, else in the search path, where it is opened.
const OfferedSchema* PluginRegistry::find(std::string_view kind, std::string_view name) {
  const std::lock_guard lock(impl_->mutex);
  if (const OfferedSchema* offered = impl_->of_members(kind, name)) return offered;
  const auto found = plugin::find(impl_->files, kind, name);
  if (found.empty()) return nullptr;
  impl_->load_found(found, kind, name);
  return impl_->of_members(kind, name);
}

std::vector<std::string> PluginRegistry::kinds() {
  std::vector<std::string> words;
  for (const plugin::Kind& kind : plugin::kinds()) words.emplace_back(kind.word);
  return words;
}

std::vector<std::string> PluginRegistry::names(std::string_view kind) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->every_name(kind);
}

std::vector<const OfferedStrategy*> PluginRegistry::all_strategies() {
  const std::lock_guard lock(impl_->mutex);
  for (const std::string& name : impl_->every_name("strategy")) {
    try {
      (void)strategy(name);
    } catch (const Error&) {
      continue;  // whoever asks for it by name gets the error
    }
  }
  std::vector<const OfferedStrategy*> out;
  for (const Member& member : impl_->members)
    for (const OfferedThing& one : member.admitted)
      if (one.kind == OfferedStrategy::kKind)
        out.push_back(static_cast<const OfferedStrategy*>(one.schema.get()));
  return out;
}

Error PluginRegistry::missing(std::string_view kind, std::string_view name) const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<std::string> looked;
  for (const std::filesystem::path& place : impl_->search_path) looked.push_back(place.string());
  std::vector<std::string> known = impl_->every_name(kind);
  if (kind == "plugin" || kind == "strategy" || kind == "schedule") known.emplace_back("single");
  std::sort(known.begin(), known.end());
  const std::string nearest = text::nearest(name, known);
  const std::string what = "there is no " + std::string(kind) + " '" + text::excerpt(name) +
                           "'; available: " + (known.empty() ? "none" : text::join(known)) + " (searched " +
                           (looked.empty() ? "no directory" : text::join(looked)) + ")";
  std::string hint = nearest.empty() ? "" : "did you mean '" + nearest + "'? Else ";
  hint += "name the plugin's directory under 'plugins:' or in HEDDLE_PLUGIN_PATH";
  return Error(ErrorCode::plugin_missing, "plugin", what, hint);
}

std::vector<PluginInfo> PluginRegistry::loaded() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<PluginInfo> out;
  for (const Member& member : impl_->members) out.push_back(member.info);
  return out;
}

const std::vector<std::filesystem::path>& PluginRegistry::search_path() const {
  return impl_->search_path;
}

std::string PluginRegistry::fingerprint() const {
  std::vector<std::string> lines;
  for (const PluginInfo& info : loaded())
    lines.push_back("plugin " + info.name + ": " + info.version +
                    (info.path.empty() ? "" : " " + plugin::digest(info.path)));
  std::sort(lines.begin(), lines.end());
  return "abi: " + std::string(plugin::abi_tag()) + "\n" + text::join(lines, "\n") + "\n";
}

}  // namespace heddle

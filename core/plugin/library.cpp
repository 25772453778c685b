// Boost.DLL opens the file with every symbol resolved at once and none given to others.
#include "core/plugin/library.h"

#include <dlfcn.h>

#include <array>
#include <boost/dll/shared_library.hpp>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <utility>

#include "core/parallel/attributed.h"
#include "heddle/base/error.h"
#include "heddle/plugin/entry_point.h"

namespace heddle::plugin {
namespace {

using Entry = void(Offer&);

// The loader's message without Boost's text around it.
std::string loader_words(const std::string& what) {
  constexpr std::string_view kBefore = "dlerror system message: ";
  const size_t before = what.find(kBefore);
  if (before == std::string::npos) return what;
  const size_t from = before + kBefore.size();
  return what.substr(from, what.find_last_of(')') - from);
}

// Another build would be opened without the check of its ABI.
void refuse_replaced(const PluginManifest& read, const PluginManifest& now,
                     const std::filesystem::path& file) {
  if (now == read) return;
  throw Error(ErrorCode::plugin_failed, file.string(),
              "the file of the plugin '" + read.name + "' " + read.version +
                  " was replaced after it was read: it is '" + now.name + "' " + now.version + " (" +
                  now.abi + ") now",
              "leave a plugin's file in place while a run starts, and start the run again");
}

// The manifest of the opened library.
PluginManifest manifest_of(const boost::dll::shared_library& library, const std::filesystem::path& file) {
  constexpr const char* kName = "heddle_plugin_manifest";
  return parse_manifest(library.has(kName) ? &library.get<const char>(kName) : "", file.string());
}

// Opens the file for good, which runs its static initialisers. An exception of theirs would leave the
// loader's lock taken: it ends the process here. dlopen is declared as throwing nothing, so a direct call is
// not guarded.
void run_static_initialisers(const std::filesystem::path& file) noexcept {
  void* (*volatile open_file)(const char*, int) = ::dlopen;
  (void)open_file(file.c_str(), RTLD_NOW | RTLD_LOCAL);
}

// The file is read again before it is opened, as opening runs its static initialisers; and what was opened is
// compared, as it may have been replaced between the two.
Entry* entry_of(const PluginManifest& manifest, const std::filesystem::path& file) {
  refuse_replaced(manifest, read_manifest(file), file);
  run_static_initialisers(std::filesystem::absolute(file));
  // On the heap and never deleted: its destructor would close the library.
  auto* library = new boost::dll::shared_library();
  try {
    library->load(boost::filesystem::path(std::filesystem::absolute(file).string()),
                  boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local);
  } catch (const std::exception& error) {
    throw Error(ErrorCode::plugin_failed, file.string(),
                "the plugin '" + manifest.name + "' does not open: " + loader_words(error.what()),
                "link the plugin with heddle_add_plugin(), which finds missing symbols when it is built");
  }
  refuse_replaced(manifest, manifest_of(*library, file), file);
  if (!library->has(HEDDLE_ENTRY_NAME))
    throw Error(ErrorCode::plugin_failed, file.string(),
                "the plugin '" + manifest.name + "' has a manifest, but no entry function " HEDDLE_ENTRY_NAME,
                "let HEDDLE_PLUGIN write both");
  return &library->get<Entry>(HEDDLE_ENTRY_NAME);
}

}  // namespace

Offer open(const PluginManifest& manifest, const std::filesystem::path& file) {
  check_abi(manifest, file);
  Entry* entry = entry_of(manifest, file);
  return attributed(
      {manifest.name, manifest.version, file}, "made its offer",
      [&] {
        Offer offer;
        entry(offer);
        return offer;
      },
      Keep::nothing);
}

std::string digest(const std::filesystem::path& file) {
  std::ifstream bytes(file, std::ios::binary);
  uint64_t hash = 0xcbf29ce484222325ull;
  std::array<char, 1 << 16> block;
  while (bytes.read(block.data(), block.size()), bytes.gcount() > 0)
    for (std::streamsize i = 0; i < bytes.gcount(); ++i)
      hash = (hash ^ static_cast<unsigned char>(block[i])) * 0x100000001b3ull;
  if (!bytes.eof())
    throw Error(ErrorCode::plugin_failed, file.string(), "the plugin's file cannot be read any more",
                "leave a plugin's file in place while a run starts");
  std::array<char, 17> digits;
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(hash));
  return digits.data();
}

}  // namespace heddle::plugin

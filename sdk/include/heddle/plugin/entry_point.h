// HEDDLE_PLUGIN, which writes a plugin's manifest into a section of its library and begins the entry
// function.
#pragma once

#include "heddle/base/export.h"
#include "heddle/plugin/abi.h"
#include "heddle/plugin/offer.h"

// The manifest's section and the entry function, as the registry looks them up.
#define HEDDLE_MANIFEST_SECTION "heddle_manifest"
#define HEDDLE_ENTRY_NAME "heddle_plugin_offer"

// Expands to "offer <text>\n" for each text.
#define HEDDLE_OFFER_PARENS ()
#define HEDDLE_OFFER_SCAN1(...) __VA_ARGS__
#define HEDDLE_OFFER_SCAN2(...) HEDDLE_OFFER_SCAN1(HEDDLE_OFFER_SCAN1(HEDDLE_OFFER_SCAN1(__VA_ARGS__)))
#define HEDDLE_OFFER_SCAN3(...) HEDDLE_OFFER_SCAN2(HEDDLE_OFFER_SCAN2(HEDDLE_OFFER_SCAN2(__VA_ARGS__)))
#define HEDDLE_OFFER_SCAN(...) HEDDLE_OFFER_SCAN3(HEDDLE_OFFER_SCAN3(HEDDLE_OFFER_SCAN3(__VA_ARGS__)))
#define HEDDLE_OFFER_LINE(first, ...) \
  "offer " first "\n" __VA_OPT__(HEDDLE_OFFER_AGAIN HEDDLE_OFFER_PARENS(__VA_ARGS__))
#define HEDDLE_OFFER_AGAIN() HEDDLE_OFFER_LINE
#define HEDDLE_OFFER_LINES(...) __VA_OPT__(HEDDLE_OFFER_SCAN(HEDDLE_OFFER_LINE(__VA_ARGS__)))

#define HEDDLE_MANIFEST_TEXT(abi, name, version, ...)               \
  "heddle plugin manifest 1\nabi " abi "\nplugin " name " " version \
  "\n" HEDDLE_OFFER_LINES(__VA_ARGS__) "end\n"

// HEDDLE_PLUGIN("name", "1.2.0") { plugin.strategy<Mine>("name", schema()); }
// HEDDLE_PLUGIN("name", "1.2.0", "strategy name other-name", "section extra") { ... }
// Used once per library. Each further text "kind name alias..." declares an offer, where kind is
// OfferedSchema's kKind. Without further texts the plugin offers "strategy <name>". The registry reads the
// manifest before it opens the library, and the offer must contain exactly these entries. The body gets
// `heddle::Offer& plugin` and may throw.
#define HEDDLE_PLUGIN(name, version, ...)                                                       \
  extern "C" {                                                                                  \
  extern HEDDLE_API const char heddle_plugin_manifest[];                                        \
  __attribute__((section(HEDDLE_MANIFEST_SECTION), used)) const char heddle_plugin_manifest[] = \
      HEDDLE_MANIFEST_TEXT(HEDDLE_ABI_TAG, name, version __VA_OPT__(, ) __VA_ARGS__);           \
  HEDDLE_API void heddle_plugin_offer(heddle::Offer& plugin);                                   \
  }                                                                                             \
  void heddle_plugin_offer([[maybe_unused]] heddle::Offer& plugin)

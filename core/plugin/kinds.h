// The kinds of plugins: what the engine does with an offer of each beyond names and fields.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/parallel/attributed.h"
#include "core/plugin/offer_checks.h"
#include "heddle/plugin/offer.h"

namespace heddle::plugin {

// A kind is added by its struct Offered..., a line of the table in kinds.cpp, a template and a kit.
struct Kind {
  std::string_view word;  // in manifests and messages
  // Throws through `checks` where the offer breaks a rule of its kind.
  void (*inspect)(const OfferChecks& checks, const std::string& thing, const OfferedSchema& offered);
  // What the offer makes is never null, and what it throws carries the plugin's name.
  void (*name_author)(OfferedSchema& offered, const Author& author);
};

std::span<const Kind> kinds();
const Kind* kind_of(std::string_view word);  // null: there is no such kind

}  // namespace heddle::plugin

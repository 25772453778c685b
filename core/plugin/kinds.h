// The kinds of plugins: what the engine does with an offer of each beyond names and fields.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/parallel/attributed.h"
#include "heddle/config/axes.h"
#include "heddle/parallel/needs.h"
#include "heddle/plugin/offer.h"
#include "heddle/plugin/optimizer.h"

namespace heddle::plugin {

// Each throws Error{plugin_failed} at the plugin's file. `thing`: "the strategy 'acme'".
class OfferChecks {
 public:
  explicit OfferChecks(const Author& author) : author_(author) {}

  [[noreturn]] void refuse(const std::string& why, const std::string& hint) const;

  void fields(const std::string& thing, const OfferedSchema& offered) const;

  void schema(const std::string& thing, const OfferedSchema& offered) const;

  void needs(const std::string& thing, const Needs& needs) const;

  void refusals(const std::string& thing, const std::vector<Refusal>& refuses,
                const AxisTable& table = {}) const;

  // An axis is declared by the parallelizer that splits along it.
  void no_axes(const std::string& thing, const Needs& needs) const;

  // Keys that the engine reads for every optimizer.
  void no_common_keys(const std::string& thing, const OfferedOptimizer& offered) const;

  void maker(const std::string& thing, bool is_missing, const std::string& not_built) const;

 private:
  void known_axis(const std::string& thing, const std::string& axis, const AxisTable& table) const;

  // The defaults, written and read again, must be allowed and stay the same.
  void defaults(const std::string& thing, const OfferedSchema& offered) const;

  const Author& author_;
};

// A kind is added by its struct Offered..., a line of the table in kinds.cpp, a template and a kit.
struct Kind {
  std::string_view word;  // in manifests and messages
  // Throws through `checks` where the offer breaks a rule of its kind.
  void (*inspect)(const OfferChecks& checks, const std::string& thing, const OfferedSchema& offered);
  // Makes the offer's products non-null and their exceptions carry the plugin's name.
  void (*name_author)(OfferedSchema& offered, const Author& author);
};

std::span<const Kind> kinds();
const Kind* kind_of(std::string_view word);  // null: there is no such kind

}  // namespace heddle::plugin

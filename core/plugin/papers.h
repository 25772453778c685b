// A plugin's papers: what it is and was built for, read from the bytes of its file before anything is opened.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/export.h"

namespace heddle::plugin {

// One thing on offer, as the papers say it.
struct PaperOffer {
  std::string kind;  // "strategy", "parallelizer", "schedule", "section", "device", "plan", "model"
  std::string name;
  std::vector<std::string> aliases;

  // The name or an alias, in any case.
  HEDDLE_API bool answers_to(std::string_view word) const;
  HEDDLE_API std::string text() const;  // "strategy acme (acme2, acme-two)"
  bool operator==(const PaperOffer&) const = default;
};

struct Papers {
  std::string abi, name, version;
  std::vector<PaperOffer> offers;  // never empty
  bool operator==(const Papers&) const = default;
};

// The tag of this engine; see abi.h.
HEDDLE_API std::string_view abi_tag();

// Throws Error{plugin_failed} with the file's path: not an ELF file, cut, without papers, papers that do not
// read.
HEDDLE_API Papers read_papers(const std::filesystem::path& file);

// The text of the section. `where` stands in errors.
HEDDLE_API Papers parse_papers(std::string_view text, const std::string& where);

// Throws Error{plugin_abi} with both tags when the papers are for another engine.
HEDDLE_API void check_abi(const Papers& papers, const std::filesystem::path& file);

}  // namespace heddle::plugin

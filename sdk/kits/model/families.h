// The families of models that a file offers.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "../kind_kits.h"
#include "heddle/plugin/offer.h"

namespace heddle::kits {

class Families {
 public:
  explicit Families(const CheckedPlugin& plugin);

  const std::filesystem::path& file() const { return file_; }
  // The one that offers the model_type, written exactly so; null: none.
  const OfferedModel* of(const std::string& model_type) const;
  std::string list() const;  // of the model_types: "llama, qwen2"

  // A small model of the type: `given` and, for each size, the first small value that the family accepts. A
  // family whose keys are a `text_config` gets that of the first other family of the file that it accepts.
  // Throws NotRun if the family refuses what is left.
  Node small_keys(const OfferedModel& offered, const std::string& type, const Node& given) const;
  // The keys of KitOptions::fields that some family has.
  Node given(const KitOptions& options) const;

 private:
  Node small_text(const OfferedModel& offered, const Node& given) const;

  const std::filesystem::path& file_;
  std::vector<const OfferedModel*> all_;
  std::vector<FieldInfo> table_;  // of all, which may share keys
};

// What facts() and config_json() say of a model with these keys: their model_type, or that of its text.
std::string type_in_files(const Node& keys);

}  // namespace heddle::kits

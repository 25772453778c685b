// The model families that a file offers.
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
  // Returns the family that offers exactly this model_type, or null.
  const OfferedModel* of(const std::string& model_type) const;
  std::string list() const;  // all model_types: "llama, qwen2"
  // The keys of all families. A key that several families have is repeated.
  const std::vector<FieldInfo>& table() const { return table_; }

  // Returns the keys of a small model of the type: `fields`, and for each size the first small value that the
  // family accepts. If the keys of the family are in a `text_config`, it gets those of the first other family
  // of the file that it accepts. Throws NotRun if the family refuses the result.
  Node small_keys(const OfferedModel& offered, const std::string& type, const Node& fields) const;
  // Returns the keys of KitOptions::fields that a family has.
  Node given(const KitOptions& options) const;

 private:
  // The keys of the family, then the keys that only other families of the file have.
  std::vector<FieldInfo> table_of(const OfferedModel& offered) const;
  Node small_text(const OfferedModel& offered, const Node& fields) const;

  const std::filesystem::path& file_;
  std::vector<const OfferedModel*> all_;
  std::vector<FieldInfo> table_;
};

// Returns the model_type that facts() and config_json() of a model with these keys must have: its own, or
// that of its text_config.
std::string type_in_files(const Node& keys);

}  // namespace heddle::kits

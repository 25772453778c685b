// The table of fields, and the messages for keys and ranges.
#include "heddle/config/schema.h"

#include <algorithm>

#include "heddle/base/text.h"

namespace heddle {
namespace {

Error unknown_key(const Node::Entry& first, const std::vector<std::string>& known) {
  const std::string near = text::nearest(first.first, known);
  return Error(ErrorCode::config, first.second.where(), "unknown key '" + first.first + "'",
               near.empty() ? "the keys are " + text::join(known) : "did you mean '" + near + "'?");
}

}  // namespace

void SchemaTable::add(FieldInfo info) {
  for (const FieldInfo& field : fields_)
    if (field.key == info.key)
      throw Error(ErrorCode::internal, "schema", "the key '" + info.key + "' is bound twice");
  fields_.push_back(std::move(info));
}

FieldInfo& SchemaTable::of(const std::string& key) {
  for (FieldInfo& field : fields_)
    if (field.key == key) return field;
  throw Error(ErrorCode::internal, "schema", "no field has the key '" + key + "'");
}

void SchemaTable::check_keys(const Node& section) const {
  if (!section.is_map())
    throw Error(ErrorCode::config, section.where(), "expected a map, got " + section.written());
  std::vector<std::string> known;
  for (const FieldInfo& field : fields_) known.push_back(field.key);
  std::vector<const Node::Entry*> unknown;
  for (const Node::Entry& entry : section.entries())
    if (std::find(known.begin(), known.end(), entry.first) == known.end()) unknown.push_back(&entry);
  if (unknown.empty()) return;
  if (unknown_keys_) throw unknown_keys_(section, unknown, known);
  throw unknown_key(*unknown.front(), known);
}

Error range_error(const Node& value, const std::string& range) {
  return Error(ErrorCode::config, value.where(), "expected " + range + ", got " + value.written());
}

}  // namespace heddle

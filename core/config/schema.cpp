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
  for (const Node::Entry& entry : section.entries())
    if (std::find(known.begin(), known.end(), entry.first) == known.end()) throw unknown_key(entry, known);
}

Error range_error(const Node& value, const std::string& range) {
  return Error(ErrorCode::config, value.where(), "expected " + range + ", got " + value.written());
}

std::string word_of(const Node& value, const std::vector<std::string>& words) {
  std::string wanted = text::lower(value.as_text());
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  for (const std::string& word : words) {
    std::string plain = text::lower(word);
    std::replace(plain.begin(), plain.end(), '-', '_');
    if (plain == wanted) return word;
  }
  const std::string near = text::nearest(wanted, words);
  throw Error(ErrorCode::config, value.where(),
              "expected one of " + text::join(words) + ", got " + value.written(),
              near.empty() ? "" : "did you mean '" + near + "'?");
}

namespace config {

Node without_target(const Node& map, const std::string& name) {
  const Node* target = map.find("_target_");
  if (target == nullptr) return map;
  if (!target->is_null()) {
    const std::string& word = target->as_text();
    if (word.substr(word.find_last_of(".:") + 1) != name)
      throw Error(ErrorCode::config, target->where(), "'" + word + "' is not known here",
                  "write " + name + ", or leave _target_ out");
  }
  return map.without("_target_");
}

}  // namespace config
}  // namespace heddle

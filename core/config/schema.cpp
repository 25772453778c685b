// The table of fields, and the messages for keys and ranges.
#include "heddle/config/schema.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle {
namespace {

Error unknown_key(const Node::Entry& entry, const std::vector<std::string>& known) {
  const std::string near = text::nearest(entry.first, known);
  return Error(ErrorCode::config, entry.second.where(), "unknown key '" + text::excerpt(entry.first) + "'",
               near.empty() ? "the keys are " + text::join(known) : "did you mean '" + near + "'?");
}

// An unknown key that is nearly one of the fields: this field then lacks the value that was meant for it.
bool misspells_a_key(const Node& section, const std::vector<FieldInfo>& fields) {
  std::vector<std::string> known;
  for (const FieldInfo& field : fields) known.push_back(field.key);
  const auto is_misspelt = [&](const Node::Entry& entry) {
    return std::find(known.begin(), known.end(), entry.first) == known.end() &&
           !text::nearest(entry.first, known).empty();
  };
  return std::any_of(section.entries().begin(), section.entries().end(), is_misspelt);
}

// Returns the place of the first key that a complaint names and the section has, else of the section.
std::string place_of(const std::string& complaint, const Node& section) {
  static const std::string kOfKeys = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
  for (size_t begin = complaint.find_first_of(kOfKeys); begin != std::string::npos;) {
    const size_t end = std::min(complaint.find_first_not_of(kOfKeys, begin), complaint.size());
    if (const Node* given = section.find(complaint.substr(begin, end - begin))) return given->where();
    begin = complaint.find_first_of(kOfKeys, end);
  }
  return section.where();
}

}  // namespace

void SchemaTable::add(std::string key, std::string help, size_t offset, config::FieldValue value,
                      const void* default_value) {
  for (const FieldInfo& field : fields_)
    if (field.key == key) throw Error(ErrorCode::internal, "schema", "the key '" + key + "' is bound twice");
  fields_.push_back({std::move(key), value.type, config::to_json(value.write(default_value)), value.range,
                     std::move(help), ""});
  bindings_.push_back({offset, std::move(value)});
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
  Errors errors;
  for (const Node::Entry& entry : section.entries())
    if (std::find(known.begin(), known.end(), entry.first) == known.end())
      errors.add(unknown_key(entry, known));
  errors.raise();
}

void SchemaTable::read_to(void* out, const Node& section) const {
  Errors errors;
  errors.attempt([&] { check_keys(section); });
  bool is_whole = section.is_map() && !misspells_a_key(section, fields_);
  for (size_t i = 0; i < fields_.size() && section.is_map(); ++i)
    if (const Node* given = section.find(fields_[i].key))
      is_whole &= errors.attempt(
          [&] { bindings_[i].value.read(*given, static_cast<char*>(out) + bindings_[i].offset); });
  if (!is_whole) errors.raise();  // what follows needs all fields
  for (const auto& fill : fills_) fill(out);
  for (const auto& rule : rules_)
    if (const std::string complaint = rule(out); !complaint.empty())
      errors.add(Error(ErrorCode::config, place_of(complaint, section), complaint));
  errors.raise();
}

Node SchemaTable::write_from(const void* value) const {
  std::vector<Node::Entry> entries;
  for (size_t i = 0; i < fields_.size(); ++i)
    entries.emplace_back(fields_[i].key,
                         bindings_[i].value.write(static_cast<const char*>(value) + bindings_[i].offset));
  return Node::map(std::move(entries));
}

bool SchemaTable::is_built(const std::string& key, const void* value) const {
  for (const auto& [built, test] : built_)
    if (built == key) return test(value);
  return false;
}

std::vector<std::string> SchemaTable::not_built_of(const void* value, const void* defaults) const {
  std::vector<std::string> out;
  const Node given = write_from(value), usual = write_from(defaults);
  for (size_t i = 0; i < fields_.size(); ++i)
    if (!fields_[i].later.empty() && !(given.entries()[i].second == usual.entries()[i].second) &&
        !is_built(fields_[i].key, value))
      out.push_back(fields_[i].key + ": " + fields_[i].later);
  return out;
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
      throw Error(ErrorCode::config, target->where(), target->written() + " is not known here",
                  "write " + name + ", or leave _target_ out");
  }
  return map.without("_target_");
}

}  // namespace config
}  // namespace heddle

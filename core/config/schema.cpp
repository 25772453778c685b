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

// Returns the place of the first key that a complaint names and the section has, else of the section.
std::string complaint_place(const std::string& complaint, const Node& section) {
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

const SchemaTable::Binding* SchemaTable::binding(const std::string& key) const {
  for (size_t i = 0; i < fields_.size(); ++i)
    if (fields_[i].key == key) return &bindings_[i];
  return nullptr;
}

void SchemaTable::read_to(void* out, const Node& section, SectionErrors& found) const {
  if (!section.is_map())
    throw Error(ErrorCode::config, section.where(), "expected a map, got " + section.written());
  std::vector<std::string> known;
  for (const FieldInfo& field : fields_) known.push_back(field.key);
  for (const Node::Entry& entry : section.entries()) {
    const auto& [key, value] = entry;
    if (const Binding* bound = binding(key)) {
      if (!found.errors.attempt([&] { bound->value.read(value, static_cast<char*>(out) + bound->offset); }))
        found.unread.push_back(key);
      continue;
    }
    found.errors.add(unknown_key(entry, known));
    found.unknown.push_back(key);
    const std::string meant = text::nearest(key, known);
    if (!meant.empty() && section.find(meant) == nullptr) found.unread.push_back(meant);
  }
  if (!found.unread.empty()) return;  // what follows needs all fields
  for (const auto& fill : fills_) fill(out);
  for (const auto& rule : rules_)
    if (const std::string complaint = rule(out); !complaint.empty())
      found.errors.add(Error(ErrorCode::config, complaint_place(complaint, section), complaint));
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

Error range_error(const Node& value, const std::string& range, const std::string& message) {
  const std::string key = value.path().substr(value.path().rfind('.') + 1);
  return Error(ErrorCode::config, value.where(),
               (message.empty() ? "expected " + range : key + " " + message) + ", got " + value.written());
}

bool SectionErrors::has(std::string_view unread_key) const {
  return std::find(unread.begin(), unread.end(), unread_key) != unread.end();
}

std::string read_word(const Node& value, const std::vector<std::string>& words) {
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
      throw Error(ErrorCode::config, target->where(), "unknown class " + target->written(),
                  "write " + name + ", or remove _target_");
  }
  return map.without("_target_");
}

}  // namespace config
}  // namespace heddle

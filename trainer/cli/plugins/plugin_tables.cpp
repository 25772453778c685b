// Tables of fields with aligned columns.
#include "trainer/cli/plugins/plugin_tables.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <sstream>

#include "heddle/base/text.h"

namespace heddle::cli {
namespace {

using Json = nlohmann::ordered_json;
using Row = std::array<std::string, 5>;  // field, type, default, range, help
constexpr size_t kWidest = 26;           // a longer default gets its own line
constexpr size_t kLine = 100;

Row row_of(const FieldInfo& field) {
  const std::string later = field.later.empty() ? "" : " (" + field.later + ")";
  return {field.key, field.type, field.default_value, field.range, field.help + later};
}

// Wraps text into lines that are indented by `indent` spaces.
std::string wrapped(const std::string& text, size_t indent) {
  std::string out, line;
  std::istringstream words(text);
  const std::string blanks(indent, ' ');
  for (std::string word; words >> word;) {
    if (!line.empty() && indent + line.size() + 1 + word.size() > kLine) {
      out += blanks + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return line.empty() ? out : out + blanks + line + "\n";
}

// Aligns the columns; the help of a field is below its row, indented.
std::string aligned(const std::vector<Row>& rows) {
  std::array<size_t, 4> width{};
  for (const Row& row : rows)
    for (size_t i = 0; i < width.size(); ++i)
      if (row[i].size() <= kWidest || i == 0) width[i] = std::max(width[i], row[i].size());
  std::string out;
  for (const Row& row : rows) {
    std::string line = "  ", below;
    for (size_t i = 0; i < width.size(); ++i) {
      const bool fits = row[i].size() <= width[i];
      if (!fits) below += wrapped(rows[0][i] + ": " + row[i], 6);
      line +=
          (fits ? row[i] + std::string(width[i] - row[i].size(), ' ') : std::string(width[i], ' ')) + "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n" + (&row == &rows[0] ? "" : wrapped(row[4], 6) + below);
  }
  return out;
}

std::string needs_of(const Needs& needs) {
  std::vector<std::string> refused;
  for (const Refusal& refusal : needs.refuses) refused.push_back(refusal.axis);
  std::string out;
  if (!needs.axes.empty()) out += "  mesh: " + text::join(needs.axes) + "\n";
  if (!refused.empty()) out += "  refuses: " + text::join(refused) + "\n";
  if (!needs.may_use.empty()) out += "  may use: " + text::join(needs.may_use) + "\n";
  return out;
}

// Returns null for an offer of another kind.
const OfferedSection* section_of(const Offered& offered) {
  return offered.kind == OfferedSection::kKind ? static_cast<const OfferedSection*>(offered.schema) : nullptr;
}

Json json_of(const Offered& offered) {
  Json fields = Json::array();
  for (const FieldInfo& field : offered.schema->fields)
    fields.push_back({{"key", field.key},
                      {"type", field.type},
                      {"default", field.default_value},
                      {"range", field.range},
                      {"help", field.help},
                      {"later", field.later}});
  Json out = {{"kind", offered.kind},
              {"name", offered.schema->name},
              {"aliases", offered.schema->aliases},
              {"fields", fields},
              {"not_built", offered.schema->not_built}};
  if (const auto* section = section_of(offered)) out["size_key"] = section->size_key;
  const Needs* needs = offered.schema->stated_needs();
  if (needs == nullptr) return out;
  Json refuses = Json::array();
  for (const Refusal& refusal : needs->refuses)
    refuses.push_back({{"axis", refusal.axis}, {"text", refusal.text}});
  out["needs"] = {{"axes", needs->axes}, {"may_use", needs->may_use}, {"refuses", refuses}};
  return out;
}

// Escapes bars for a cell of a Markdown table.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string code(const std::string& text) {
  return text.empty() ? "" : "`" + cell(text) + "`";
}

}  // namespace

std::vector<Offered> offered_by(const PluginInfo& plugin, PluginRegistry& registry) {
  std::vector<Offered> out;
  for (const std::string& offer : plugin.offers) {  // "kind name (aliases)"
    std::istringstream words(offer);
    std::string kind, name;
    words >> kind >> name;
    out.push_back({kind, registry.find(kind, name)});
  }
  return out;
}

std::string to_text(const PluginInfo& plugin, const std::vector<Offered>& offers) {
  std::string out = "plugin " + plugin.name + " " + plugin.version +
                    "\n  file: " + (plugin.path.empty() ? "built into the engine" : plugin.path.string()) +
                    "\n";
  for (const Offered& offered : offers) {
    const OfferedSchema& schema = *offered.schema;
    out += "\n" + offered.kind + " " + schema.name;
    if (!schema.aliases.empty()) out += " (also: " + text::join(schema.aliases) + ")";
    out += "\n";
    if (!schema.not_built.empty()) out += "  not built yet: " + schema.not_built + "\n";
    if (const auto* section = section_of(offered)) out += "  works with: " + section->size_key + " above 1\n";
    if (const Needs* needs = schema.stated_needs()) out += needs_of(*needs);
    std::vector<Row> rows = {{"FIELD", "TYPE", "DEFAULT", "RANGE", ""}};
    for (const FieldInfo& field : schema.fields) rows.push_back(row_of(field));
    out += schema.fields.empty() ? "  no fields\n" : aligned(rows);
  }
  return out;
}

std::string to_json(const PluginInfo& plugin, const std::vector<Offered>& offers) {
  Json all = Json::array();
  for (const Offered& offered : offers) all.push_back(json_of(offered));
  return Json{
      {"plugin", plugin.name}, {"version", plugin.version}, {"path", plugin.path.string()}, {"offers", all}}
      .dump();
}

std::string to_markdown(const std::vector<Offered>& offers) {
  std::string out;
  const auto tables = std::count_if(offers.begin(), offers.end(),
                                    [](const Offered& offered) { return !offered.schema->fields.empty(); });
  for (const Offered& offered : offers) {
    if (offered.schema->fields.empty()) continue;
    if (tables > 1) out += (out.empty() ? "### `" : "\n### `") + offered.schema->name + "`\n\n";
    out += "| field | type | default | range | what it does |\n|---|---|---|---|---|\n";
    for (const FieldInfo& field : offered.schema->fields) {
      const Row row = row_of(field);
      out += "| " + code(row[0]) + " | " + cell(row[1]) + " | " + code(row[2]) + " | " + cell(row[3]) +
             " | " + cell(row[4]) + " |\n";
    }
  }
  return out.empty() ? "No fields.\n" : out;
}

}  // namespace heddle::cli

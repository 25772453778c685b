// Prepares the sets of texts of a recipe.
#include "lib/run/preflight/open_texts.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <system_error>
#include <utility>

#include "heddle/base/text.h"
#include "lib/checkpoint/safetensors/checksum.h"
#include "lib/data/hub_directory.h"
#include "lib/data/samples/sample_set.h"
#include "lib/data/section_keys.h"
#include "lib/run/model/find_model.h"
#include "lib/run/model/prepared_model.h"
#include "lib/run/recipe/datasets.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 16> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d", &local);
  return text.data();
}

std::string text_at(const Node& map, const char* key) {
  const Node* value = map.find(key);
  return value == nullptr || value->kind() != Node::Kind::text ? "" : value->as_text();
}

// Returns `place` if it is a directory, else the directory of the file.
fs::path directory_of(const fs::path& place) {
  std::error_code ignored;
  return fs::is_regular_file(place, ignored) ? place.parent_path() : place;
}

// Returns the directory with the tokenizer of the model of a run, a checkpoint or an adapter.
fs::path with_tokenizer(const fs::path& place) {
  std::error_code ignored;
  if (fs::exists(place / "tokenizer.json", ignored)) return place;
  try {
    return find_model(place).notes;
  } catch (const Error&) {
    return place;
  }
}

fs::path tokenizer_place(const std::string& name, const std::string& where) {
  const fs::path path = recipe::expand_home(name), place = directory_of(hub_directory(path, HubKind::model));
  std::error_code ignored;
  if (fs::is_directory(place, ignored)) return with_tokenizer(place);
  const std::string hint = hub_directory_hint(path, HubKind::model);
  throw MissingData(
      {{where, "the tokenizer '" + name + "' does not exist" + (hint.empty() ? "" : "; " + hint)}});
}

}  // namespace

NotPrepared::NotPrepared(const std::string& where, const std::string& name, std::optional<int64_t> rows)
    : Error(ErrorCode::input, where,
            name + " is not prepared yet; run heddle prepare or heddle train; " +
                (rows ? "only the first " + std::to_string(*rows) + " rows are checked"
                      : std::string("its samples are not checked"))) {}

TextTokenizer TextSets::tokenizer() const {
  TextTokenizer out;
  const Node given = recipe_.dataset && recipe_.dataset->texts ? recipe_.dataset->texts->tokenizer : Node();
  const bool is_name = given.kind() == Node::Kind::text;
  const std::string name = is_name ? given.as_text() : text_at(given, "pretrained_model_name_or_path");
  if (!name.empty())
    out.directory = tokenizer_place(name, given.where());
  else if (const fs::path of_model = model_path(recipe_.model); !of_model.empty())
    out.directory = tokenizer_place(of_model.string(), recipe_.model.where);
  if (!given.is_map()) return out;
  out.is_nemo = text_at(given, "_target_").find("NeMoAutoTokenizer") != std::string::npos ||
                given.find("_target_") == nullptr;
  out.arguments = given.without("_target_").without("pretrained_model_name_or_path");
  return out;
}

std::vector<fs::path> TextSets::places() const {
  if (!preparation_.directory.empty()) return {preparation_.directory};
  std::vector<fs::path> out;
  if (const char* shared = std::getenv("HEDDLE_DATA"); shared != nullptr && *shared != '\0')
    out.emplace_back(shared);
  out.push_back(fs::path(recipe_.checkpoint.directory) / "data");
  return out;
}

// Returns the path of the script, which lies next to the plugin's library.
fs::path TextSets::script_of(const DatasetSection& section, const std::string& name) const {
  const OfferedDataset* offered = find_dataset(plugins_, section.target);
  for (const PluginInfo& plugin : plugins_.loaded())
    for (const std::string& offer : plugin.offers)
      if (offer == "dataset " + offered->name || offer.starts_with("dataset " + offered->name + " ")) {
        const fs::path script = plugin.path.parent_path() / name;
        std::error_code ignored;
        if (fs::is_regular_file(script, ignored)) return script;
        throw Error(ErrorCode::plugin_failed, script.string(),
                    "does not exist: the plugin '" + plugin.name + "' names it as its script",
                    "reinstall the plugin");
      }
  throw Error(ErrorCode::internal, section.where, "no plugin offers '" + offered->name + "'");
}

TextJob TextSets::job_of(const DatasetSection& section) const {
  const OfferedDataset& offered = *find_dataset(plugins_, section.target);
  TextJob job;
  job.name = offered.name;
  job.where = section.where;
  job.section = section.section;
  job.script = script_of(section, offered.texts->script);
  job.arguments = offered.resolve(section.section).values;
  job.tokenizer = tokenizer();
  job.apply_split = section.texts->apply_split;
  job.is_dated = section.texts->date.has_value();
  job.date = job.is_dated ? *section.texts->date : today();
  job.source_keys = offered.texts->source_keys;
  for (const std::string& key : job.source_keys) {
    const Node* name = job.arguments.find(key);
    const Node* written = section.section.find(key);  // has a place for messages
    if (name == nullptr || name->is_null()) continue;
    if (name->is_list() && name->size() == 0)
      throw Error(ErrorCode::config, written != nullptr ? written->where() : section.where,
                  key + " names no file", "set it to a JSON or JSONL file, or a list of them");
    job.source = name->is_list() ? "a list of files" : name->as_text();
    job.files = find_texts({written != nullptr ? *written : *name, text_at(job.arguments, "split"),
                            text_at(job.arguments, "name"), text_at(job.arguments, "revision"),
                            job.arguments.find("name") != nullptr});
    const auto& whole = offered.texts->whole_keys;
    job.files.is_local &= std::find(whole.begin(), whole.end(), key) != whole.end();
    break;
  }
  const bool has_template = job.arguments.find("chat_template") != nullptr;
  if (has_template && text_at(job.arguments, "chat_template").empty() && recipe_.dataset &&
      &section != &*recipe_.dataset)
    if (const Node* of_training = recipe_.dataset->section.find("chat_template"))
      job.arguments = job.arguments.with("chat_template", *of_training);
  return job;
}

PreparedFile TextSets::prepared(const TextJob& job) const {
  auto found = find_or_prepare(job, preparation_, places());
  if (!found) throw NotPrepared(job.where, job.name, probe_texts(job));
  return std::move(*found);
}

PreparedFile TextSets::prepare(const DatasetSection& section) const {
  return prepared(job_of(section));
}

TextsOfRun TextSets::of_run(const DatasetSection& section) const {
  const TextJob job = job_of(section);
  return {texts_named(inputs_of(job)), texts_checksum(job, places()), tokenizer_checksum(job.tokenizer)};
}

std::unique_ptr<IDataset> TextSets::open(const DatasetSection& section, const DataFacts& facts) const {
  const TextJob job = job_of(section);
  const PreparedFile made = prepared(job);
  for (const std::string& warning : made.warnings) facts.warn(warning);
  const bool has_own_tokenizer =
      !facts.model_tokenizer.empty() &&
      checkpoint::checksum(facts.model_tokenizer) == tokenizer_checksum(job.tokenizer);
  return open_samples(made.file, inputs_of(job), facts.pack_size, facts.vocabulary, has_own_tokenizer);
}

std::vector<PreparedFile> prepare_texts(const Recipe& given, PluginRegistry& plugins,
                                        const PreparationOptions& preparation) {
  const Recipe read = with_plugin_sections(given, plugins);
  read.errors.raise();
  const Recipe recipe = with_datasets(read, plugins);
  Errors errors = recipe.errors;
  std::vector<PreparedFile> out;
  const auto prepare = [&](const DatasetSection& section) {
    if (!section.texts) return;
    errors.attempt([&] { out.push_back(TextSets(recipe, plugins, preparation).prepare(section)); });
  };
  if (recipe.dataset) prepare(*recipe.dataset);
  for (const DatasetSection& section : recipe.validation) prepare(section);
  errors.raise();
  return out;
}

}  // namespace heddle

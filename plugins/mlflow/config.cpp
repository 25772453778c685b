// Schema of MLflow's section with AutoModel's keys, and interpretation of tracking URIs.
#include "config.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace heddle::mlflow {
namespace {

std::string text_of(const Node& value) {
  return value.kind() == Node::Kind::text ? value.as_text() : config::to_json(value);
}

void check_tags(const Node& tags) {
  if (tags.is_null()) return;
  if (!tags.is_map())
    throw Error(ErrorCode::config, tags.where(), "expected a map of strings, got " + tags.written());
  for (const auto& [key, value] : tags.entries()) {
    if (value.is_map() || value.is_list())
      throw Error(ErrorCode::config, value.where(), "expected a string, got " + value.written());
    if (!is_key(key))
      throw Error(ErrorCode::config, value.where(),
                  "'" + text::excerpt(key) + "' is not a valid name in MLflow",
                  "use letters, digits, spaces and _-.:/");
  }
}

void check_name(const Node& name) {
  if (FieldType<std::string>::read(name).empty())
    throw Error(ErrorCode::config, name.where(), "expected a name, got ''");
}

void check_depth(const Node& depth) {
  if (!depth.is_null() && depth.as_integer() < 0) throw range_error(depth, "at least 0");
}

// Decodes percent escapes: "%20" is a space.
std::string decoded(const std::string& path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    int code = 0;
    const char* end = path.data() + std::min(i + 3, path.size());
    const bool is_code = path[i] == '%' && i + 2 < path.size() &&
                         std::from_chars(path.data() + i + 1, end, code, 16).ptr == end;
    out += is_code ? static_cast<char>(code) : path[i];
    if (is_code) i += 2;
  }
  return out;
}

}  // namespace

Texts Config::given_tags() const {
  Texts out;
  for (const auto& [key, value] : tags.entries()) out.emplace_back(key, text_of(value));
  return out;
}

ConfigSchema<Config> schema() {
  return ConfigSchema<Config>()
      .field("experiment_name", &Config::experiment_name,
             "Name of the experiment. It is created if the store has none of this name.",
             Check{"not empty", check_name})
      .field("run_name", &Config::run_name,
             "Name of the run. Empty or null: the last part of checkpoint_dir. A resumed run keeps its name.")
      .field("tracking_uri", &Config::tracking_uri,
             "Directory of the store, as a path or a file URI. null: mlruns in checkpoint_dir. For the URI "
             "of a server or a database nothing is sent: the default directory is used, with a warning.")
      .field("artifact_location", &Config::artifact_location,
             "Directory of the artifacts of a new experiment, as a path or a file URI. null: in the store. "
             "For any other URI: in the store, with a warning.")
      .field("tags", &Config::tags, "Tags of the run, a map of strings.",
             Check{"map of texts or null", check_tags})
      .field("resume", &Config::resume,
             "Continue the MLflow run when training resumes from a checkpoint. false: create a new run.")
      .field("description", &Config::description, "Description of the run in MLflow.")
      .field("flatten_depth", &Config::flatten_depth,
             "Number of levels below a section whose keys become separate parameters. null: all.",
             Check{"at least 0", check_depth});
}

std::string scheme_of(const std::string& uri) {
  const size_t colon = uri.find(':');
  if (uri == "databricks") return uri;
  const auto is_word = [](unsigned char c) { return std::isalnum(c) || c == '+' || c == '-' || c == '.'; };
  if (colon == uri.npos || colon < 2 || !std::all_of(uri.begin(), uri.begin() + colon, is_word)) return "";
  return text::lower(uri.substr(0, colon));
}

std::optional<std::filesystem::path> local_path(const std::string& uri) {
  const std::string scheme = scheme_of(uri);
  if (scheme.empty()) return uri;
  if (scheme != "file") return std::nullopt;
  std::string path = uri.substr(std::string("file:").size());
  if (path.starts_with("//localhost/")) path = path.substr(std::string("//localhost").size());
  if (path.starts_with("//")) path = path.substr(2);
  return decoded(path);
}

std::filesystem::path store_of(const Config& config, const std::filesystem::path& checkpoint_dir) {
  if (config.tracking_uri && !config.tracking_uri->empty())
    if (const auto path = local_path(*config.tracking_uri); path && !path->empty()) return *path;
  return checkpoint_dir / "mlruns";
}

}  // namespace heddle::mlflow

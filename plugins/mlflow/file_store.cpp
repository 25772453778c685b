// Writer of the meta.yaml files and directories of the store.
#include "file_store.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <fstream>
#include <random>

#include "config.h"
#include "files.h"
#include "heddle/base/error.h"

namespace heddle::mlflow {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMeta = "meta.yaml";

int64_t now_ms() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
}

// Returns empty for a file without valid YAML, because other programs may have written it.
std::optional<Node> read_meta(const fs::path& directory) {
  try {
    const Node meta = config::read((directory / kMeta).string());
    if (meta.is_map()) return meta;
  } catch (const Error&) {
  }
  return std::nullopt;
}

std::string text_in(const Node& meta, const std::string& key) {
  const Node* value = meta.find(key);
  return value != nullptr && value->kind() == Node::Kind::text ? value->as_text() : "";
}

// Quotes a string as in JSON. Without quotes YAML would read 12345 as a number.
std::string text(const std::string& value) {
  return heddle::text::quoted(value);
}

void write_meta(const fs::path& directory, const Texts& values) {
  std::string out;
  for (const auto& [key, value] : values) out += key + ": " + value + "\n";
  replace_file(directory / kMeta, out);
}

std::string uri_of(const fs::path& path) {
  const std::string whole = fs::absolute(path).lexically_normal().string();
  std::string out = "file://";
  for (const char c : whole) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) || std::string_view("/_.-~").find(c) < 5;
    char code[4];
    std::snprintf(code, sizeof(code), "%%%02X", static_cast<unsigned char>(c));
    out += plain ? std::string(1, c) : std::string(code);
  }
  return out;
}

std::vector<fs::path> directories_in(const fs::path& place) {
  std::vector<fs::path> out;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(place, none))
    if (fs::is_directory(entry.path(), none)) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

// Returns 18 digits derived from the name (FNV-1a), so that two runs that start at the same time create one
// experiment.
std::string experiment_id(const std::string& name) {
  if (name == "Default") return "0";
  uint64_t sum = 14695981039346656037u;
  for (const char c : name) sum = (sum ^ static_cast<uint8_t>(c)) * 1099511628211u;
  constexpr uint64_t least = 100'000'000'000'000'000u;
  return std::to_string(least + sum % (9 * least));
}

void make_experiment(const fs::path& directory, const std::string& name, const fs::path& artifacts) {
  const std::string time = std::to_string(now_ms());
  write_meta(directory, {{"artifact_location", text(uri_of(artifacts))},
                         {"creation_time", time},
                         {"experiment_id", text(directory.filename().string())},
                         {"last_update_time", time},
                         {"lifecycle_stage", "active"},
                         {"name", text(name)}});
}

fs::path experiment_in(const fs::path& store, const NewRun& run) {
  for (const fs::path& directory : directories_in(store))
    if (const auto meta = read_meta(directory);
        meta && text_in(*meta, "name") == run.experiment && text_in(*meta, "lifecycle_stage") == "active")
      return directory;
  if (directories_in(store).empty() && run.experiment != "Default")
    make_experiment(store / "0", "Default", store / "0");  // MLflow creates it in every new store
  const fs::path directory = store / experiment_id(run.experiment);
  make_experiment(directory, run.experiment, run.artifacts.value_or(directory));
  return directory;
}

std::string random_id() {
  std::random_device device;
  std::string out;
  for (int i = 0; i < 32; ++i) out += "0123456789abcdef"[device() % 16];
  return out;
}

std::string user_name() {
  const passwd* user = getpwuid(getuid());
  return user != nullptr ? user->pw_name : std::to_string(getuid());
}

// Formats a number so that Python's float() reads it.
std::string number(double value) {
  if (std::isnan(value)) return "nan";
  std::array<char, 40> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

}  // namespace

bool is_run_id(const std::string& text) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == 32 && std::all_of(text.begin(), text.end(), is_digit);
}

StoredRun StoredRun::create(const fs::path& store, const NewRun& run) {
  const fs::path experiment = experiment_in(store, run);
  const std::string id = random_id(), user = user_name();
  const auto meta = read_meta(experiment);
  std::string artifacts = meta ? text_in(*meta, "artifact_location") : "";
  if (artifacts.empty()) artifacts = uri_of(experiment);
  const StoredRun out(experiment / id);
  for (const char* part : {"metrics", "params", "tags", "artifacts"}) make_directory(out.directory_ / part);
  for (const auto& [key, value] : run.params) write_file(out.directory_ / "params" / key, value);
  out.set_tags({{"mlflow.runName", run.name},
                {"mlflow.user", user},
                {"mlflow.source.name", "heddle"},
                {"mlflow.source.type", "LOCAL"}});
  out.set_tags(run.tags);
  write_meta(out.directory_, {{"artifact_uri", text(artifacts + "/" + id + "/artifacts")},
                              {"end_time", "null"},
                              {"entry_point_name", "''"},
                              {"experiment_id", text(experiment.filename().string())},
                              {"lifecycle_stage", "active"},
                              {"run_id", text(id)},
                              {"run_name", text(run.name)},
                              {"source_name", "''"},
                              {"source_type", "4"},
                              {"source_version", "''"},
                              {"start_time", std::to_string(now_ms())},
                              {"status", std::to_string(static_cast<int>(RunStatus::running))},
                              {"tags", "[]"},
                              {"user_id", text(user)}});
  return out;
}

std::optional<StoredRun> StoredRun::find(const fs::path& store, const std::string& id) {
  if (!is_run_id(id)) return std::nullopt;
  for (const fs::path& experiment : directories_in(store))
    if (read_meta(experiment / id)) return StoredRun(experiment / id);
  return std::nullopt;
}

void StoredRun::set_tags(const Texts& tags) const {
  for (const auto& [key, value] : tags) write_file(directory_ / "tags" / key, value);
}

void StoredRun::add(const std::string& metric, double time, double value, int64_t step) const {
  const fs::path file = directory_ / "metrics" / key_of(metric);
  if (file.parent_path() != directory_ / "metrics") make_directory(file.parent_path());
  append_line(file,
              std::to_string(std::llround(time * 1000)) + " " + number(value) + " " + std::to_string(step));
}

void StoredRun::keep_before(int64_t step) const {
  std::error_code none;
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory_ / "metrics", none))
    if (entry.is_regular_file(none)) files.push_back(entry.path());
  for (const fs::path& file : files) {
    mlflow::keep_before(file, step);
    if (fs::file_size(file, none) == 0) fs::remove(file, none);  // MLflow cannot read an empty metric file
  }
}

// Edits single lines, because other programs may have added keys.
void StoredRun::set_status(RunStatus status) const {
  std::ifstream in(directory_ / kMeta);
  std::string out;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("status:")) line = "status: " + std::to_string(static_cast<int>(status));
    if (line.starts_with("end_time:"))
      line = "end_time: " + (status == RunStatus::running ? "null" : std::to_string(now_ms()));
    out += line + "\n";
  }
  if (!out.empty()) replace_file(directory_ / kMeta, out);
}

void StoredRun::add_artifact(const std::string& name, const std::string& text) const {
  const auto meta = read_meta(directory_);
  const auto place = local_path(meta ? text_in(*meta, "artifact_uri") : "");
  if (place && !place->empty()) write_file(*place / name, text);
}

}  // namespace heddle::mlflow

// The section `mlflow`, with AutoModel's keys.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "heddle/config/schema.h"
#include "params.h"

namespace heddle::mlflow {

struct Config {
  std::string experiment_name = "automodel-experiment";
  std::optional<std::string> run_name = "", tracking_uri, artifact_location, description;
  Node tags;
  bool resume = true;
  std::optional<int64_t> flatten_depth = 1;

  Texts given_tags() const;
};

ConfigSchema<Config> schema();

// Returns the path of a file URI or a plain path. Empty for other URIs (a server or a database).
std::optional<std::filesystem::path> local_path(const std::string& uri);
// Returns the scheme of a URI: the part before "://", or before ":" as in "databricks:profile".
std::string scheme_of(const std::string& uri);

// Returns the directory of the store.
std::filesystem::path store_of(const Config& config, const std::filesystem::path& checkpoint_dir);

}  // namespace heddle::mlflow

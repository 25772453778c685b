// The section `wandb`: keys of AutoModel that have an effect without a server.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "heddle/config/schema.h"

namespace heddle::wandb {

struct Config {
  std::string project = "automodel";
  std::optional<std::string> entity, name = "", group, job_type, notes;
  std::optional<std::vector<std::string>> tags;
  std::optional<std::string> save_dir, dir, mode, id, resume;

  bool writes() const { return mode != "disabled"; }
  bool continues() const { return resume != "never"; }
};

ConfigSchema<Config> schema();

// Returns the directory that contains the runs.
std::filesystem::path runs_of(const Config& config, const std::filesystem::path& checkpoint_dir);

// Returns the name that W&B would show: the section's name, else AutoModel's name from the model, else the
// directory's.
std::string name_of(const Config& config, const Node& configuration,
                    const std::filesystem::path& checkpoint_dir);

// Returns whether a text is a valid run id, which is part of a directory's name.
bool is_id(const std::string& text);

}  // namespace heddle::wandb

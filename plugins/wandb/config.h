// The section `wandb`: keys of AutoModel that act without a server.
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

// Where the directories of runs are.
std::filesystem::path runs_of(const Config& config, const std::filesystem::path& checkpoint_dir);

// The name that W&B would show: that of the section, else AutoModel's, from the model, else the directory's.
std::string name_of(const Config& config, const Node& configuration,
                    const std::filesystem::path& checkpoint_dir);

// Whether a text may be the id of a run, and so a part of a directory's name.
bool is_id(const std::string& text);

}  // namespace heddle::wandb

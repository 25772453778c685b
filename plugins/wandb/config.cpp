// Schema of the keys of wandb.init that have an effect without a server.
#include "config.h"

#include <algorithm>

namespace heddle::wandb {
namespace {

void check_id(const Node& value) {
  if (value.is_null() || is_id(FieldType<std::string>::read(value))) return;
  throw Error(ErrorCode::config, value.where(),
              "expected up to 64 letters, digits, hyphens and underscores, got " + value.written());
}

std::string model_of(const Node& configuration) {
  const Node* model = configuration.find("model");
  if (model == nullptr) return "";
  const Node* name = model->find("pretrained_model_name_or_path");
  const Node* config = model->find("config");
  if ((name == nullptr || name->is_null()) && config != nullptr)
    name = config->is_map() ? config->find("pretrained_model_name_or_path") : config;
  return name != nullptr && name->kind() == Node::Kind::text ? name->as_text() : "";
}

}  // namespace

bool is_id(const std::string& text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), allowed);
}

ConfigSchema<Config> schema() {
  return ConfigSchema<Config>()
      .field("project", &Config::project, "Name of the project, stored in run.json.")
      .field("entity", &Config::entity, "Name of the team, stored in run.json.")
      .field("name", &Config::name,
             "Name of the run, stored in run.json. Empty or null: the last two parts of the model's name.")
      .field("group", &Config::group, "Group of runs, stored in run.json.")
      .field("job_type", &Config::job_type, "Type of the run, stored in run.json.")
      .field("tags", &Config::tags, "Tags of the run, stored in run.json.")
      .field("notes", &Config::notes, "Notes on the run, stored in run.json.")
      .field("save_dir", &Config::save_dir,
             "Directory in which the directory wandb is created. null: checkpoint_dir.")
      .field("dir", &Config::dir, "Name of save_dir in wandb.init.")
      .field("mode", &Config::mode,
             "Mode of wandb. disabled writes nothing. All other modes write JSON lines and send nothing.",
             OneOf{{"online", "offline", "shared", "disabled"}})
      .field("id", &Config::id,
             "Id of the run, with which the name of its directory ends. null: eight random letters.",
             Check{"letters, digits, - and _", check_id})
      .field("resume", &Config::resume,
             "Behavior of a run that resumes from a checkpoint. never creates a new directory, and must "
             "refuses the run if its directory is missing. null and all other values continue in the "
             "existing directory.",
             OneOf{{"allow", "auto", "must", "never"}})
      .rule([](const Config& config) {
        const bool both = config.dir && config.save_dir && *config.dir != *config.save_dir;
        return std::string(both ? "dir and save_dir differ: set only one of them" : "");
      });
}

std::filesystem::path runs_of(const Config& config, const std::filesystem::path& checkpoint_dir) {
  const std::filesystem::path place = config.save_dir ? std::filesystem::path(*config.save_dir)
                                      : config.dir    ? std::filesystem::path(*config.dir)
                                                      : checkpoint_dir;
  return place / "wandb";
}

std::string name_of(const Config& config, const Node& configuration,
                    const std::filesystem::path& checkpoint_dir) {
  if (config.name && !config.name->empty()) return *config.name;
  const std::filesystem::path model = model_of(configuration);
  std::vector<std::string> parts;
  for (const auto& part : model)
    if (!part.empty() && part != "/") parts.push_back(part.string());
  if (parts.empty()) return checkpoint_dir.filename().string();
  if (parts.size() > 2) parts.erase(parts.begin(), parts.end() - 2);
  return text::join(parts, "_");
}

}  // namespace heddle::wandb

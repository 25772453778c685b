// Reads `model:`: an HF directory, or a configuration with random weights.
#include <array>

#include "heddle/base/text.h"
#include "lib/run/recipe/component.h"
#include "lib/run/recipe/fields.h"
#include "lib/run/recipe/readers.h"

namespace heddle::recipe {
namespace {

struct ModelFields {
  std::optional<std::string> target, directory;
  Node config;
  Node dtype, torch_dtype;
  bool check_memory = true, export_config = false;
};

const ConfigSchema<ModelFields>& model_schema() {
  static const auto schema =
      ConfigSchema<ModelFields>()
          .field("_target_", &ModelFields::target, "from_pretrained or from_config.")
          .field("pretrained_model_name_or_path", &ModelFields::directory,
                 "A Hugging Face directory, the checkpoint_dir of a run, or a checkpoint.")
          .field("config", &ModelFields::config,
                 "Alone: HF's keys, or the path of a config.json, for random weights. Beside a path: keys "
                 "that this run uses in place of those of the model's config.json.")
          .field("export_config", &ModelFields::export_config,
                 "Beside a path, what is exported has the keys of config too; false: it has the model's own "
                 "config.json.")
          .field("dtype", &ModelFields::dtype, "Storage; null or auto: what config.json says, else float32.")
          .field("torch_dtype", &ModelFields::torch_dtype, "The older name of dtype.")
          .field(
              "check_memory", &ModelFields::check_memory,
              "Refuse a run whose parameters, gradients and optimizer do not fit in this machine's memory; "
              "false: start it.");
  return schema;
}

const std::array<std::string, 2> kTargets = {"from_pretrained", "from_config"};

std::string storage(const Node& value) {
  if (value.kind() == Node::Kind::text && value.as_text() == "auto") return "";
  const std::string word = FieldType<DTypeWord>::read(value).word;
  if (word.empty() || word == "float32" || word == "bfloat16") return word;
  throw Error(ErrorCode::config, value.where(),
              "parameters are stored in float32 or bfloat16, got " + value.written());
}

[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& hint = "") {
  throw Error(ErrorCode::config, where, what, hint);
}

// AutoModel's classes for other tasks end in from_pretrained too.
void refuse_other_class(const Node& section, const std::string& target) {
  const size_t dot = target.rfind('.');
  const std::string path = target.substr(0, dot == target.npos ? 0 : dot);
  const std::string name = path.substr(path.rfind('.') + 1);
  if (name.find("AutoModel") == name.npos || name.ends_with("ForCausalLM") || name == "AutoModel") return;
  refuse(where_of(section, "_target_"),
         "'" + text::excerpt(name) + "' is not built; there is: NeMoAutoModelForCausalLM");
}

void read_pretrained(const Node& section, const ModelFields& words, ModelSection& model) {
  const bool has_config = !words.config.is_null();
  if (!words.directory && has_config)
    refuse(where_of(section, "config"),
           "from_pretrained takes config beside pretrained_model_name_or_path only",
           "name the model's directory, or take from_config for random weights");
  if (!words.directory || words.directory->empty())
    refuse(section.where(), "the model is missing: neither pretrained_model_name_or_path nor config is given",
           "model: {config: {model_type: llama, hidden_size: 64, ...}} trains from scratch");
  model.source = ModelSection::Source::pretrained;
  model.directory = path_of(*words.directory);
  model.overrides = {words.config, words.export_config};
  if (words.export_config && !has_config)
    refuse(where_of(section, "export_config"),
           "export_config is set, and there are no keys: config is not given",
           "give the keys that this run changes, or leave export_config out");
  if (has_config && (!words.config.is_map() || words.config.size() == 0))
    refuse(where_of(section, "config"),
           "beside pretrained_model_name_or_path expected a map of keys that replace those of its "
           "config.json, got " +
               words.config.written(),
           "config: {output_router_logits: true}, or leave it out");
}

}  // namespace

std::vector<FieldInfo> model_fields() {
  return model_schema().fields();
}

ModelSection read_model(const Node& section, NotBuilt&) {
  const ModelFields words = model_schema().read(section);
  const bool has_config = !words.config.is_null();
  const std::string target =
      component(section, kTargets, has_config && !words.directory ? "from_config" : "from_pretrained");
  if (words.target) refuse_other_class(section, *words.target);
  ModelSection model;
  model.where = section.where();
  model.check_memory = words.check_memory;
  const std::string older = storage(words.torch_dtype);
  model.dtype = storage(words.dtype);
  if (!older.empty() && !model.dtype.empty() && older != model.dtype)
    refuse(where_of(section, "torch_dtype"), "dtype and torch_dtype differ", "give dtype alone");
  if (model.dtype.empty()) model.dtype = older;
  if (target == "from_pretrained") {
    read_pretrained(section, words, model);
    return model;
  }
  if (words.directory)
    refuse(where_of(section, "pretrained_model_name_or_path"),
           "from_config takes no pretrained_model_name_or_path", "config may be the path of a config.json");
  if (words.export_config)
    refuse(where_of(section, "export_config"),
           "export_config is for a config beside pretrained_model_name_or_path; a model of random weights is "
           "always exported with its keys",
           "leave export_config out");
  if (words.config.kind() != Node::Kind::map && words.config.kind() != Node::Kind::text)
    refuse(where_of(section, "config"),
           "expected a map of HF's keys, or the path of a config.json, got " + words.config.written());
  model.source = ModelSection::Source::config;
  model.config = words.config;
  if (const Node& file = words.config; file.kind() == Node::Kind::text)
    model.config = Node::text(path_of(file.as_text()), file.mark(), file.path());
  return model;
}

}  // namespace heddle::recipe

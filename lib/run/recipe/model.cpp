// Reads `model:`: a Hugging Face directory, or a config with random weights.
#include <cctype>
#include <string_view>

#include "heddle/base/text.h"
#include "lib/data/section_keys.h"
#include "lib/run/recipe/fields.h"
#include "lib/run/recipe/readers.h"
#include "lib/run/recipe/skipped_keys.h"

namespace heddle {

// Dtype in which parameters are stored; empty: null or auto.
struct StorageDtype {
  std::string word;
};

template <>
struct FieldType<StorageDtype> {
  static std::string type_name() { return "float32, bfloat16, auto or null"; }
  static StorageDtype read(const Node& value) {
    if (value.kind() == Node::Kind::text && value.as_text() == "auto") return {};
    const std::string word = FieldType<DTypeWord>::read(value).word;
    if (word.empty() || word == "float32" || word == "bfloat16") return {word};
    throw Error(ErrorCode::config, value.where(),
                "the dtype of parameters must be float32 or bfloat16, got " + value.written());
  }
  static Node write(const StorageDtype& value) {
    return value.word.empty() ? Node() : Node::text(value.word);
  }
};

namespace recipe {
namespace {

[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& hint = "") {
  throw Error(ErrorCode::config, where, what, hint);
}

// Accepts from_pretrained and from_config of AutoModel's classes for causal language models. Classes for
// other tasks have these functions too.
void check_target(const Node& given) {
  ends_in({"from_pretrained", "from_config"}).run(given);
  if (given.is_null()) return;
  const std::string& target = given.as_text();
  const size_t dot = target.rfind('.');
  const std::string path = target.substr(0, dot == target.npos ? 0 : dot);
  const std::string name = path.substr(path.rfind('.') + 1);
  if (name.find("AutoModel") == name.npos || name.ends_with("ForCausalLM") || name == "AutoModel") return;
  refuse(given.where(), "'" + text::excerpt(name) + "' is not built; use NeMoAutoModelForCausalLM");
}

struct ModelFields {
  std::optional<std::string> target, directory;
  Node config;
  StorageDtype dtype, torch_dtype;
  bool check_memory = true, export_config = false, load_base_model = false;
};

const ConfigSchema<ModelFields>& model_schema() {
  static const auto schema =
      ConfigSchema<ModelFields>()
          .field("_target_", &ModelFields::target,
                 "Function that makes the model. Default: from_config if config is set and "
                 "pretrained_model_name_or_path is not.",
                 Check{"from_pretrained or from_config", check_target})
          .field("pretrained_model_name_or_path", &ModelFields::directory,
                 "Model to start from: Hugging Face directory, checkpoint_dir of a run, or checkpoint.")
          .field("config", &ModelFields::config,
                 "Without a path: keys of a config.json, or its path, for random weights; with "
                 "pretrained_model_name_or_path among the keys, the keys replace those of that model. With a "
                 "path: keys that replace those of the model's config.json in this run.")
          .field("export_config", &ModelFields::export_config,
                 "Export the model with the keys of config. false: with the model's own config.json.")
          .field("load_base_model", &ModelFields::load_base_model,
                 "Read the weights of the model that config names, with from_config.")
          .field("dtype", &ModelFields::dtype,
                 "Dtype in which parameters are stored. Default: that of config.json, else float32; bfloat16 "
                 "for "
                 "from_config of NeMoAutoModel, and for its from_pretrained if config.json has no dtype.")
          .field("torch_dtype", &ModelFields::torch_dtype, "Older name of dtype.")
          .field("check_memory", &ModelFields::check_memory,
                 "Refuse a run whose parameters, gradients and optimizer state do not fit into the memory of "
                 "this "
                 "machine.")
          .rule([](const ModelFields& m) {
            const bool differ =
                !m.dtype.word.empty() && !m.torch_dtype.word.empty() && m.dtype.word != m.torch_dtype.word;
            return differ ? "torch_dtype and dtype differ: set dtype only" : "";
          });
  return schema;
}

void read_pretrained(const Node& section, const ModelFields& words, ModelSection& model) {
  const bool has_config = !words.config.is_null();
  if (!words.directory && has_config)
    refuse(key_location(section, "config"),
           "from_pretrained takes config only together with pretrained_model_name_or_path",
           "set pretrained_model_name_or_path, or use from_config for random weights");
  if (!words.directory || words.directory->empty())
    refuse(section.where(), "the model is missing: neither pretrained_model_name_or_path nor config is set",
           "model: {config: {model_type: llama, hidden_size: 64, ...}} trains from random weights");
  model.source = ModelSection::Source::pretrained;
  model.directory = expand_home(*words.directory);
  model.overrides = {words.config, words.export_config};
  if (words.export_config && !has_config)
    refuse(key_location(section, "export_config"),
           "export_config is set, but config is not, so there are no keys to export",
           "set config to the keys that this run changes, or remove export_config");
  if (has_config && (!words.config.is_map() || words.config.size() == 0))
    refuse(
        key_location(section, "config"),
        "together with pretrained_model_name_or_path, config must be a map of keys that replace those of its "
        "config.json, got " +
            words.config.written(),
        "write for example config: {output_router_logits: true}, or remove config");
}

// Returns the type of a config class: "transformers.Qwen3MoeConfig" gives qwen3_moe; empty: not such a class.
std::string type_of_class(const std::string& target) {
  std::string name = target.substr(target.rfind('.') + 1);
  constexpr std::string_view kEnd = "Config";
  if (!name.ends_with(kEnd) || name == "AutoConfig") return "";
  name.resize(name.size() - kEnd.size());
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool upper = std::isupper(static_cast<unsigned char>(name[i])) != 0;
    if (upper && i > 0) out += '_';
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
  }
  return out;
}

// Reads `config`: a map of keys may name the model whose keys it replaces, or the class of the configuration.
void read_config(const Node& section, const ModelFields& words, ModelSection& model) {
  Node keys = words.config;
  if (keys.kind() == Node::Kind::text) {
    model.config = Node::text(expand_home(keys.as_text()), keys.mark(), keys.path());
    return;
  }
  if (!keys.is_map())
    refuse(key_location(section, "config"),
           "expected a map of Hugging Face keys or the path of a config.json, got " + keys.written());
  std::optional<Node> base;
  for (const char* name : {"name_or_path", "pretrained_model_name_or_path"}) {
    if (const Node* given = keys.find(name); given != nullptr && !given->is_null()) base = *given;
    keys = keys.without(name);
  }
  const Node* target = keys.find("_target_");
  if (target != nullptr && keys.find("model_type") == nullptr && !base)
    if (const std::string type = type_of_class(target->as_text()); !type.empty())
      keys = keys.with("model_type", Node::text(type, target->mark(), target->path()));
  for (const char* steers : {"_target_", "trust_remote_code"}) keys = keys.without(steers);
  model.config = base ? Node::text(expand_home(base->as_text()), base->mark(), base->path()) : keys;
  if (base && keys.size() > 0) model.overrides = {keys, true};
}

void read_from_config(const Node& section, const ModelFields& words, ModelSection& model) {
  if (words.directory)
    refuse(key_location(section, "pretrained_model_name_or_path"),
           "from_config takes no pretrained_model_name_or_path", "set config to the path of a config.json");
  if (words.export_config)
    refuse(key_location(section, "export_config"),
           "export_config needs a config together with pretrained_model_name_or_path; a model with random "
           "weights is "
           "always exported with its keys",
           "remove export_config");
  read_config(section, words, model);
  model.source = ModelSection::Source::config;
  if (!words.load_base_model) return;
  if (model.config.kind() != Node::Kind::text)
    refuse(key_location(section, "load_base_model"), "load_base_model is set, but config names no model",
           "config: {pretrained_model_name_or_path: DIRECTORY}");
  model.source = ModelSection::Source::pretrained;
  model.directory = model.config.as_text();
}

// Adds the keys of model.backend as if config had them; keys of config win. A model without experts ignores
// them.
void add_backend(const Node& backend, ModelSection& model, RecipeNotes& notes) {
  const std::vector<Node::Entry> more = keys_of_backend(backend, notes);
  if (more.empty()) return;
  const bool inside = model.source == ModelSection::Source::config && model.config.is_map();
  Node keys = inside ? Node() : model.overrides.keys;
  if (keys.is_null()) keys = Node::map({}, backend.mark(), backend.path());
  for (const auto& [key, value] : more)
    if (keys.find(key) == nullptr) keys = keys.with(key, value);
  (inside ? model.backend : model.overrides.keys) = keys;
}

}  // namespace

std::vector<FieldInfo> model_fields() {
  return model_schema().fields();
}

ModelSection read_model(const Node& given, RecipeNotes& notes, SectionErrors& found) {
  if (builds_gpt2(given)) return read_built_gpt2(given);
  const Node section = without_python_keys(given, notes).without("backend");
  const ModelFields words = model_schema().read(section, found);
  std::erase_if(found.unread, [](const std::string& key) { return key == "dtype" || key == "torch_dtype"; });
  const bool from_config =
      words.target ? words.target->ends_with("from_config") : !words.config.is_null() && !words.directory;
  ModelSection model;
  model.where = section.where();
  model.check_memory = words.check_memory;
  model.mtp_keys = mtp_keys(given);
  if (const Node* heads = mtp_heads(given)) model.mtp_heads = heads->where();
  model.dtype = words.dtype.word.empty() ? words.torch_dtype.word : words.dtype.word;
  found.check({"_target_", "pretrained_model_name_or_path", "config", "export_config", "load_base_model"},
              [&] {
                if (from_config)
                  read_from_config(section, words, model);
                else
                  read_pretrained(section, words, model);
              });
  if (words.target && words.target->find("NeMoAutoModel") != std::string::npos) {
    if (model.dtype.empty() && from_config) model.dtype = "bfloat16";
    model.dtype_without_word = "bfloat16";
    const Node* transformers = given.find("force_hf");
    if (transformers == nullptr || transformers->is_null() || !transformers->as_boolean())
      model.automodel = *section.find("_target_");
  }
  const Node* backend = given.find("backend");
  if (backend != nullptr && !backend->is_null())
    found.errors.attempt([&] { add_backend(*backend, model, notes); });
  return model;
}

ModelSection read_model(const Node& section, RecipeNotes& notes) {
  SectionErrors found;
  ModelSection model = read_model(section, notes, found);
  found.errors.raise();
  return model;
}

}  // namespace recipe
}  // namespace heddle

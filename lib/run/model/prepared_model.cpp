// A model with random weights or from a directory.
#include "lib/run/model/prepared_model.h"

#include <ATen/core/TensorBody.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <set>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/hf_source.h"
#include "heddle/checkpoint/manifest.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/engine/engine.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/experts.h"
#include "lib/checkpoint/huggingface/read_config.h"
#include "lib/checkpoint/sharded/sharded_source.h"
#include "lib/data/hub_directory.h"
#include "lib/run/model/adapter/adapter.h"
#include "lib/run/model/checkpoint_name.h"
#include "lib/run/model/overridden.h"
#include "lib/run/recipe/readers.h"

namespace heddle {
namespace {

at::ScalarType dtype_of(const std::string& word) {
  return word == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

// Returns the end tokens of texts, which a model with random weights does not define.
Node end_tokens(const ModelSection& section) {
  const Node own = section.config.is_map()
                       ? section.config
                       : checkpoint::read_config_json(config_file(section.config.as_text()));
  Node out = Node::map({});
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    const Node* instead = section.overrides.empty() ? nullptr : section.overrides.keys.find(key);
    const Node* given = instead != nullptr ? instead : own.find(key);
    if (given != nullptr && !given->is_null()) out = out.with(key, *given);
  }
  return out;
}

PreparedModel with_random_weights(const ModelSection& section, PluginRegistry& plugins,
                                  std::vector<std::string>& warnings) {
  PreparedModel out;
  if (section.config.is_map()) {
    out.spec = read_map(section, plugins, warnings);
    return out;
  }
  const std::filesystem::path file = config_file(section.config.as_text());
  out.spec = section.overrides.empty() ? engine::read_model(file, plugins)
                                       : read_with_keys(file, section.overrides.keys, plugins);
  return out;
}

// Checks the key `dequantize_base_checkpoint`. Quantized files are always dequantized, as in AutoModel
// without the key.
void check_may_dequantize(const PreparedModel& model, const Node& recipe) {
  const Node* section = recipe.find("checkpoint");
  const Node* word = section == nullptr ? nullptr : section->find("dequantize_base_checkpoint");
  if (word == nullptr || word->kind() != Node::Kind::boolean || word->as_boolean()) return;
  if (model.dequantized.empty()) return;
  throw Error(ErrorCode::config, word->where(),
              "the weights in " + model.place.weights.string() + " are in " + model.dequantized +
                  ", and training with quantized weights is not built",
              "remove the key or set it to true, which dequantizes the weights when they are read");
}

// Returns the source without parameters that a transform added and the files lack; their Init gives their
// values.
ParameterSource without_added(const PreparedModel& model, const Transformed& changes) {
  std::set<std::string> absent(changes.added.begin(), changes.added.end());
  for (const std::string& name : model.tensors) absent.erase(name);
  if (!model.source || absent.empty()) return model.source;
  return [source = model.source, absent = std::move(absent)](const Shard& shard) {
    return !absent.contains(shard.name) && source(shard);
  };
}

void refuse_export(const ActiveTransform& transform, const Transformed& changes) {
  if (changes.added.empty() || changes.exports_added || changes.added_elsewhere || changes.files) return;
  throw Error(ErrorCode::config, transform.run.where,
              changes.no_files.empty() ? transform.name + " adds parameters ('" + changes.added.front() +
                                             "'), which have no place in the exported model"
                                       : "the exported model has no place for what " + transform.name +
                                             " adds: " + changes.no_files,
              "set checkpoint.save_consolidated: false; checkpoints contain the parameters");
}

void refuse_packed_export(const PreparedModel& model) {
  for (size_t i = 0; i < model.changes.size(); ++i)
    for (const auto& [name, derived] : model.changes[i].derived)
      if (name == derived.from)
        throw Error(ErrorCode::config, model.transforms[i].run.where,
                    "'" + name + "' is stored in a format that the exported model cannot contain",
                    "set checkpoint.save_consolidated: false");
}

// Applies a transform. An error of two transforms at one seam gets the place of the section.
Transformed apply(const ActiveTransform& one, Units& units) {
  try {
    return one.transform->apply(units, one.run);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::plugin_conflict) throw;
    throw Error(error.code(), one.run.where, error.message(), "remove one of the two sections");
  }
}

// Throws if checkpoints without the model would lose changes that other transforms make to it.
void refuse_lost(const PreparedModel& model) {
  const auto without = std::find_if(model.changes.begin(), model.changes.end(),
                                    [](const Transformed& one) { return one.base_elsewhere; });
  if (without == model.changes.end() || model.directory.empty()) return;
  const std::string& name = model.transforms[without - model.changes.begin()].name;
  for (size_t i = 0; i < model.changes.size(); ++i)
    if (model.changes[i].values && !model.changes[i].added_elsewhere)
      throw Error(ErrorCode::config, model.transforms[i].run.where,
                  model.transforms[i].name + " changes the model's values when they are read, but " + name +
                      " saves only its own parameters, so readers of the model would get the old values",
                  "export the changed model first with a run without " + name);
  if (!model.exported_keys.empty())
    throw Error(ErrorCode::config, model.exported_keys,
                "model.export_config: " + name +
                    " saves only its own parameters, without a config.json that could contain "
                    "these keys",
                "write the keys into the model's config.json, or remove export_config");
}

}  // namespace

Units PreparedModel::make(c10::Device device) const {
  Units units = spec->make_units(at::TensorOptions().device(device).dtype(dtype));
  for (const ActiveTransform& one : transforms) (void)one.transform->apply(units, one.run);
  return units;
}

std::set<std::string> PreparedModel::elsewhere() const {
  std::set<std::string> frozen, names;
  bool any = false;
  for (const Transformed& one : changes) {
    frozen.insert(one.frozen.begin(), one.frozen.end());
    if (one.added_elsewhere) names.insert(one.added.begin(), one.added.end());
    any = any || one.base_elsewhere;
  }
  if (any && !directory.empty()) names.merge(frozen);
  return names;
}

ParameterSource PreparedModel::values(uint64_t seed) const {
  return with_derived(source, changes, seed);
}

std::map<std::string, int64_t> PreparedModel::packed() const {
  std::map<std::string, int64_t> out;
  for (const Transformed& one : changes)
    for (const auto& [name, derived] : one.derived)
      if (derived.from == name) out[name] = c10::multiply_integers(derived.shape);
  return out;
}

std::set<std::string> PreparedModel::of_other_models() const {
  std::set<std::string> out;
  for (size_t i = 0; i < changes.size(); ++i)
    if (!transforms[i].other_model.is_null()) out.insert(changes[i].added.begin(), changes[i].added.end());
  return out;
}

const AddedFiles* PreparedModel::added_files() const {
  for (const Transformed& one : changes)
    if (one.files) return &*one.files;
  return nullptr;
}

// Opens a model; an error of the directory itself gets the place that names the directory.
PreparedModel open_named(const ModelSection& section, PluginRegistry& plugins,
                         std::vector<std::string>& warnings) {
  try {
    return open_pretrained(section.directory, plugins, section.overrides, warnings);
  } catch (const Error& error) {
    if (error.where() != hub_directory(section.directory, HubKind::model)) throw;
    throw Error(error.code(), section.where, "'" + error.where() + "' " + error.message(), error.hint());
  }
}

// Returns the model of a section like `model`, without transforms.
PreparedModel model_of(const ModelSection& given, PluginRegistry& plugins,
                       std::vector<std::string>& warnings) {
  const ModelSection section = with_recipe_keys(given, plugins, warnings);
  PreparedModel model = section.source == ModelSection::Source::pretrained
                            ? open_named(section, plugins, warnings)
                            : with_random_weights(section, plugins, warnings);
  model.routing = section.routing;
  const std::string stored = model.spec->facts().dtype;
  model.dtype = dtype_of(!section.dtype.empty() ? section.dtype
                         : !stored.empty()      ? stored
                                                : section.dtype_without_word);
  if (!model.source) {
    std::string& config = model.origin.files["config.json"];
    config = model.spec->config_json(model.dtype == at::kFloat ? "float32" : "bfloat16");
    if (const Node ends = end_tokens(section); ends.size() > 0) add_to_config(config, ends);
  }
  return model;
}

void open_other_model(ActiveTransform& transform, PluginRegistry& plugins,
                      std::vector<std::string>& warnings) {
  RecipeNotes notes;
  const ModelSection words = recipe::read_model(transform.other_model, notes);
  engine::refuse_not_built(transform.other_model, notes.not_built);
  warnings.insert(warnings.end(), notes.warnings.begin(), notes.warnings.end());
  PreparedModel model = model_of(words, plugins, warnings);
  if (model.source) transform.other_place = model.place;
  OtherModel out{model.spec, model.source, model.dtype, model.directory.string()};
  transform.run.other_model = std::make_shared<const OtherModel>(std::move(out));
}

// Replaces the pointer in RUN/LATEST/model by the checkpoint that it points to.
std::filesystem::path without_pointers(const std::filesystem::path& path) {
  std::filesystem::path out;
  for (const std::filesystem::path& part : path) {
    const std::filesystem::path entry = out / part;
    out = is_checkpoint_pointer(entry) ? out / checkpoint::pointed(entry) : entry;
  }
  return out;
}

// Returns the name of the model for files: the absolute path of its directory. For a run's directory or a
// pointer in it, the checkpoint that was found, which stays the same when that run continues. A hub name is
// unchanged.
std::string base_name(const PreparedModel& model) {
  namespace fs = std::filesystem;
  const fs::path named = without_pointers(model.directory), weights = model.place.weights;
  if (!fs::is_directory(named)) return named.string();
  const bool sharded = model.place.kind == ModelPlace::Kind::sharded;
  const fs::path found = sharded ? weights.parent_path() : weights;
  const bool is_named =
      !model.place.adapters.empty() || fs::equivalent(named, weights) || fs::equivalent(named, found);
  return fs::absolute(is_named ? named : found).lexically_normal().string();
}

PreparedModel prepare_model(const Recipe& recipe, PluginRegistry& plugins,
                            std::vector<std::string>& warnings) {
  PreparedModel model = model_of(recipe.model, plugins, warnings);
  check_may_dequantize(model, recipe.configuration);
  model.transforms = make_transforms(recipe.sections, static_cast<uint64_t>(recipe.seed));
  for (ActiveTransform& one : model.transforms) {
    one.run.model = base_name(model);
    one.run.spec = model.spec.get();
    if (!one.other_model.is_null()) open_other_model(one, plugins, warnings);
  }
  return model;
}

std::filesystem::path model_path(const ModelSection& section) {
  if (section.source == ModelSection::Source::pretrained) return section.directory;
  return section.config.is_map() ? "" : section.config.as_text();
}

// Returns "3 of the tensors (a, b, c)", sorted by name.
std::string some_of(std::vector<std::string> names) {
  const std::string count = std::to_string(names.size());
  const bool more = names.size() > 5;
  if (more) names.resize(5);
  return count + " of the tensors (" + text::join(names) + (more ? ", ..." : "") + ")";
}

void warn_of_unused(const PreparedModel& model, const Units& units, std::vector<std::string>& warnings) {
  if (!model.own_head.empty()) warnings.push_back(model.own_head);
  // A sharded model has the parameters under their own names, which may differ from the tensors of its
  // family's files.
  const ModelSpec* files = model.place.kind == ModelPlace::Kind::sharded ? nullptr : model.spec.get();
  // Parameters that are stored in another format have their original format in the files.
  const bool packed = !model.packed().empty();
  const Units plain = packed ? model.spec->make_units(at::TensorOptions().device(at::kMeta)) : Units{};
  std::vector<std::string> names = checkpoint::unused(model.tensors, packed ? plain : units, files), known;
  std::erase_if(names, [&](const std::string& name) {
    const bool is_known = files != nullptr && files->passes_over(name);
    if (is_known) known.push_back(name);
    return is_known;
  });
  if (!names.empty())
    warnings.push_back(model.directory.string() + ": the model does not use " + some_of(names) +
                       "; they are not loaded and not saved");
  if (!known.empty())
    warnings.push_back(model.directory.string() + ": " + some_of(known) + " belong to modules that " +
                       model.spec->facts().model_type +
                       " is trained without; they are not loaded and not saved");
}

void check_weights(const PreparedModel& model, const Units& units) {
  if (!model.source) return;  // a source on meta reads nothing
  const ParameterSource values = model.values(/*seed=*/0);
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters()) {
      Shard shard = whole_shard(slot, {});
      shard.tensor = *slot.tensor;
      values(shard);
    }
}

TransformedModel apply_transforms(PreparedModel model, bool exports, std::vector<std::string>& warnings) {
  Units units = model.spec->make_units(at::TensorOptions().device(at::kMeta).dtype(model.dtype));
  model.changes.clear();
  for (const ActiveTransform& one : model.transforms) {
    const Transformed& changes = model.changes.emplace_back(apply(one, units));
    if (exports) refuse_export(one, changes);
    model.source = without_added(model, changes);
    if (changes.values) model.source = changes.values(std::move(model.source));
    if (!changes.config.empty()) add_to_config(model.origin.files["config.json"], Node::map(changes.config));
    warnings.insert(warnings.end(), changes.warnings.begin(), changes.warnings.end());
    if (changes.base_elsewhere && model.directory.empty())
      warnings.push_back(one.run.where + ": the model starts with random weights, which " + one.name +
                         " freezes: set model.pretrained_model_name_or_path");
  }
  model::each<Experts>(units, [&](const std::string&, Experts&) { model.has_experts = true; });
  refuse_lost(model);
  if (exports && model.added_files() == nullptr) refuse_packed_export(model);
  return {std::move(model), std::move(units)};
}

}  // namespace heddle

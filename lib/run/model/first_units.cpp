// The units of a run as its transforms change them, for the first time: what they did is looked at.
#include <algorithm>
#include <set>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/experts.h"
#include "lib/run/model/prepared_model.h"

namespace heddle {
namespace {

// The source without the parameters that a transform added and the files lack: these begin with their Init.
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
              "set checkpoint.save_consolidated: false; checkpoints have them");
}

void refuse_packed_export(const PreparedModel& model) {
  for (size_t i = 0; i < model.changes.size(); ++i)
    for (const auto& [name, derived] : model.changes[i].derived)
      if (name == derived.from)
        throw Error(ErrorCode::config, model.transforms[i].run.where,
                    "'" + name + "' is held in another form, which the exported model has no place for",
                    "set checkpoint.save_consolidated: false");
}

// Two transforms at one seam are said with a section of the recipe.
Transformed apply(const ActiveTransform& one, Units& units) {
  try {
    return one.transform->apply(units, one.run);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::plugin_conflict) throw;
    throw Error(error.code(), one.run.where, error.message(), "leave out one of the two sections");
  }
}

// Checkpoints without the model: what else was done to it would be lost.
void refuse_lost(const PreparedModel& model) {
  const auto without = std::find_if(model.changes.begin(), model.changes.end(),
                                    [](const Transformed& one) { return one.base_elsewhere; });
  if (without == model.changes.end() || model.directory.empty()) return;
  const std::string& name = model.transforms[without - model.changes.begin()].name;
  for (size_t i = 0; i < model.changes.size(); ++i)
    if (model.changes[i].values && !model.changes[i].added_elsewhere)
      throw Error(ErrorCode::config, model.transforms[i].run.where,
                  model.transforms[i].name + " changes the values of the model as they are read, and " +
                      name +
                      " saves what it adds alone: whoever reads the model later would have the old values",
                  "export the changed model first, by a run without " + name);
  if (!model.exported_keys.empty())
    throw Error(ErrorCode::config, model.exported_keys,
                "model.export_config: " + name +
                    " saves what it adds alone, and no config.json that could have "
                    "these keys",
                "write them into the config.json of the model, or leave export_config out");
}

}  // namespace

Units first_units(PreparedModel& model, bool exports, std::vector<std::string>& warnings) {
  Units units = model.spec->make_units(at::TensorOptions().device(at::kMeta).dtype(model.dtype));
  model.changes.clear();
  for (const ActiveTransform& one : model.transforms) {
    const Transformed& changes = model.changes.emplace_back(apply(one, units));
    if (exports) refuse_export(one, changes);
    model.source = without_added(model, changes);
    if (changes.values) model.source = changes.values(std::move(model.source));
    warnings.insert(warnings.end(), changes.warnings.begin(), changes.warnings.end());
    if (changes.base_elsewhere && model.directory.empty())
      warnings.push_back(one.run.where + ": the model begins with random weights, which " + one.name +
                         " freezes: name a model with model.pretrained_model_name_or_path");
  }
  model::each<Experts>(units, [&](const std::string&, Experts&) { model.has_experts = true; });
  refuse_lost(model);
  if (exports && model.added_files() == nullptr) refuse_packed_export(model);
  return units;
}

}  // namespace heddle

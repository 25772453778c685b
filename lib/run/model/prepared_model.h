// A model that is ready to be made: its description, where its values come from, and what changes its units.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/model/family.h"
#include "heddle/model/unit.h"
#include "heddle/parallel/build.h"
#include "heddle/plugin/registry.h"
#include "lib/checkpoint/huggingface/hf_origin.h"
#include "lib/run/model/find_model.h"
#include "lib/run/model/transforms.h"
#include "lib/run/recipe/recipe.h"

namespace heddle {

// Runs, `heddle check`, `heddle generate` and dry worlds make their units here and nowhere else.
struct PreparedModel {
  std::shared_ptr<const ModelSpec> spec;
  checkpoint::HfOrigin origin;  // what exports carry over: config.json, tokenizer, names of files, dtypes
  ParameterSource source;       // empty: random weights
  std::vector<std::string> tensors;  // that are there to be loaded
  at::ScalarType dtype = at::kFloat;
  std::set<std::string> idle_keys = {};  // of `model.config` beside a path: those that change nothing
  std::string routing = {};              // keys of routers that a recipe of AutoModel has, for messages
  std::string own_head;                  // why the head is not tied as config.json says; empty: it is
  std::string exported_keys;             // where keys are given that exports have too; empty: nowhere
  std::filesystem::path directory;       // of a pretrained model, as it was named; empty: random weights
  ModelPlace place;                      // what find_model() found there
  std::string dequantized;  // the form of the weights in its files; empty: they are not quantized
  std::vector<ActiveTransform> transforms = {};  // in the order in which they act
  std::vector<Transformed> changes = {};         // what each of them did, filled by apply_transforms()
  bool has_experts =
      false;  // filled by apply_transforms(): numbers depend on how a batch is cut into microbatches

  // The units, changed by the transforms. On meta no value is made. Throws what a transform refuses.
  Units make(c10::Device device = at::kMeta) const;
  // Names of parameters that checkpoints leave out, because a resumed run reads them from the model's files.
  std::set<std::string> elsewhere() const;
  // `source`, with the values that transforms derive from it, or from random values of this seed; empty: all
  // values are those of their Init.
  ParameterSource values(uint64_t seed) const;
  // How many numbers parameters stand for that a transform holds in another form.
  std::map<std::string, int64_t> packed() const;
  // Names of parameters of other models: those that transforms add with a model of their own (a teacher).
  std::set<std::string> of_other_models() const;
  // What checkpoints hold in place of the model for transformers; null: nothing.
  const AddedFiles* added_files() const;
};

// Reads the model's config.json as engine::read_model() does. A saved file is data, so code that it names is
// not loaded: where no plugin offers the family, the hint names the plugins of the run and the option
// --config of the commands. Throws what engine::read_model() throws.
HEDDLE_API std::shared_ptr<const ModelSpec> read_saved_model(const ModelPlace& place,
                                                             PluginRegistry& plugins);

// Reads config.json and the headers of the weights, or the manifest, not the weights. PATH is what
// find_model() takes. Throws Error{input} naming the file and the key or tensor.
HEDDLE_API PreparedModel open_pretrained(const std::filesystem::path& path, PluginRegistry& plugins);
// The same with keys in place of those of its config.json, as read_overridden() says.
PreparedModel open_pretrained(const std::filesystem::path& path, PluginRegistry& plugins,
                              const ConfigOverrides& overrides, std::vector<std::string>& warnings);

// The model of a recipe: pretrained, or of the configuration's own keys with random weights; with the
// transforms of its sections. Throws Error.
PreparedModel prepare_model(const Recipe& recipe, PluginRegistry& plugins,
                            std::vector<std::string>& warnings);

// A model whose transforms have acted once, and its units on meta.
struct TransformedModel {
  PreparedModel model;  // with `changes`
  Units units;
};
// Applies the transforms to the model's units, and keeps what they did. Parameters that they add and that the
// files of the model lack begin with their Init from then on. What transforms warn of is added to `warnings`.
// `exports`: the run exports its model; a transform whose parameters have no place in the export is then
// refused with Error{config}.
TransformedModel apply_transforms(PreparedModel model, bool exports, std::vector<std::string>& warnings);

// The file or directory of a model; empty where the configuration itself holds its shape.
std::filesystem::path place_of(const ModelSection& section);

// Tensors in the files that the model has no place for, the first of them by name.
void warn_of_unused(const PreparedModel& model, const Units& units, std::vector<std::string>& warnings);

// Every parameter must be there in its shape. Throws Error{input}.
void check_weights(const PreparedModel& model, const Units& units);

}  // namespace heddle

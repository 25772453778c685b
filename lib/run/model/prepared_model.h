// A model that is ready to be built: its description, the source of its values, and the transforms of its
// units.
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

// Runs, `heddle check`, `heddle generate` and dry worlds build units only through this type.
struct PreparedModel {
  std::shared_ptr<const ModelSpec> spec;
  checkpoint::HfOrigin origin;       // for exports: config.json, tokenizer, file names, dtypes
  ParameterSource source;            // empty: random weights
  std::vector<std::string> tensors;  // tensors in the files
  at::ScalarType dtype = at::kFloat;
  std::set<std::string> idle_keys = {};  // keys of `model.config` beside a path that have no effect
  std::string routing = {};              // router keys that AutoModel's recipe implies, for messages
  std::string own_head;                  // why the head is not tied as config.json says; empty: it is tied
  std::string exported_keys;             // place of the keys that exports get too; empty: none
  std::filesystem::path directory;       // directory of a pretrained model, as given; empty: random weights
  ModelPlace place;                      // result of find_model() for the directory
  std::string dequantized;               // quantization format of the files; empty: not quantized
  std::vector<ActiveTransform> transforms = {};  // in the order of application
  std::vector<Transformed> changes = {};         // results of the transforms, set by apply_transforms()
  bool has_experts =
      false;  // filled by apply_transforms(): numbers depend on how a batch is cut into microbatches

  // Returns the units after all transforms. On meta, no values are made. Throws the errors of transforms.
  Units make(c10::Device device = at::kMeta) const;
  // Names of parameters that checkpoints leave out because a resumed run reads them from the model's files.
  std::set<std::string> elsewhere() const;
  // Returns `source` with the values that transforms derive from it, or from random values with this seed;
  // empty: all values come from their Init.
  ParameterSource values(uint64_t seed) const;
  // Number of weights that each packed parameter stands for, for parameters that a transform stores packed.
  std::map<std::string, int64_t> packed() const;
  // Names of parameters of other models: those that transforms add with a model of their own (a teacher).
  std::set<std::string> of_other_models() const;
  // Files that checkpoints contain instead of the model in the Hugging Face format; null: none.
  const AddedFiles* added_files() const;
};

// Reads the model's config.json as engine::read_model() does, without loading code that the file names. If no
// plugin offers the family, the hint names the plugins of the run and the option --config. Throws as
// engine::read_model().
HEDDLE_API std::shared_ptr<const ModelSpec> read_saved_model(const ModelPlace& place,
                                                             PluginRegistry& plugins);

// Reads config.json and the headers of the weights, or the manifest, but not the weights. PATH is as for
// find_model(). Throws Error{input} that names the file and the key or tensor.
HEDDLE_API PreparedModel open_pretrained(const std::filesystem::path& path, PluginRegistry& plugins);
// Overload with overrides of config.json, as in read_overridden().
PreparedModel open_pretrained(const std::filesystem::path& path, PluginRegistry& plugins,
                              const ConfigOverrides& overrides, std::vector<std::string>& warnings);

// Returns the model of a recipe with the transforms of its sections: pretrained, or with random weights from
// the recipe's own keys. Throws Error.
PreparedModel prepare_model(const Recipe& recipe, PluginRegistry& plugins,
                            std::vector<std::string>& warnings);

// A model after its transforms were applied once, and its units on meta.
struct TransformedModel {
  PreparedModel model;  // with `changes` set
  Units units;
};
// Applies the transforms to the model's units and records their results. Parameters that they add and that
// the model's files lack start from their Init. Adds the warnings of transforms to `warnings`. `exports`: the
// run exports its model; throws Error{config} for a transform whose parameters an export cannot contain.
TransformedModel apply_transforms(PreparedModel model, bool exports, std::vector<std::string>& warnings);

// Returns the file or directory of a model; empty if the recipe itself has the model's keys.
std::filesystem::path model_path(const ModelSection& section);

// Warns of tensors in the files that the model does not use, sorted by name.
void warn_of_unused(const PreparedModel& model, const Units& units, std::vector<std::string>& warnings);

// Checks that every parameter is in the files with its shape. Throws Error{input}.
void check_weights(const PreparedModel& model, const Units& units);

}  // namespace heddle

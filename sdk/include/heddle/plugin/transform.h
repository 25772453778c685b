// What changes a model before anything else sees it: frozen parameters, adapters, replaced layers. The plugin
// kind `transform`; after torchtitan's ModelConverter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/config/axes.h"
#include "heddle/model/family.h"
#include "heddle/model/module.h"
#include "heddle/model/stored.h"
#include "heddle/model/unit.h"
#include "heddle/parallel/shard.h"
#include "heddle/plugin/offer.h"

namespace heddle {

// A model beside that of the run.
struct OtherModel {
  std::shared_ptr<const ModelSpec> spec;
  ParameterSource source;             // by the names of its units; empty: random weights
  at::ScalarType dtype = at::kFloat;  // in which it is stored
  std::string name;                   // its directory, as the recipe names it; empty: random weights
};

// What a transform is told of the run.
struct TransformRun {
  std::string where;                // of its section, for errors: "run.yaml:3 freeze_config"
  uint64_t seed = 0;                // of the run
  std::string model = {};           // its model, as the recipe names it; empty: random weights
  const ModelSpec* spec = nullptr;  // how files store parameters; null: as they are
  // That of OfferedTransform::model_field; null: it has none, or its files are not on this machine.
  std::shared_ptr<const OtherModel> other = nullptr;
};

// How a file has a parameter: its dims in another order, then in another shape; or as boxes of a tensor of
// which other parameters are the rest.
struct AddedTensor {
  std::string name;            // in the file, after the prefix
  std::vector<int64_t> dims;   // the parameter's, in their order there
  std::vector<int64_t> shape;  // of the tensor
  StoredParts within = {};     // boxes of the tensor, in place of `dims`; empty: the parameter is all of it
};

// Files of what was added, in a format of their own: an adapter as PEFT reads it.
struct AddedFiles {
  std::string weights;                        // "adapter_model.safetensors": each added parameter as a tensor
  std::string prefix;                         // before its name there
  std::map<std::string, AddedTensor> stored;  // by parameter; without an entry it is there as it is
  std::vector<std::pair<std::string, std::string>> texts;  // further files: name and content
};

// First values that are computed from a parameter of the model as it is read: row norms, packed codes. Each
// rank computes its own boxes of them, so they do not depend on the topology.
struct Derived {
  std::string from;            // the parameter that is read
  std::vector<int64_t> shape;  // its shape, dtype and Init, as the model has it without transforms
  at::ScalarType dtype = at::kFloat;
  Init init = {};
  bool by_rows = false;  // `fill` needs only the rows of it that the box has; else all of it
  // Writes box.tensor, which is on any device; `from`: in the CPU's memory. Called from several threads.
  std::function<void(const Shard& box, const at::Tensor& from)> fill;
};

// What a transform did. The engine compares it with the units and refuses a transform that did something
// else, so that checkpoints, exports and the header of the run can rely on it.
struct Transformed {
  std::vector<std::string> frozen;  // names of parameters that trained before and do not now
  std::vector<std::string> added;   // names of parameters that were not there; values come from their Init
  // The exported model holds the added parameters as tensors of their names. False: a run that adds
  // parameters and exports its model is refused.
  bool exports_added = false;
  // By parameter. Of one that was there before, whose own values are then read: it may have another shape and
  // dtype, and does not train.
  std::map<std::string, Derived> derived = {};
  // Checkpoints leave out what is frozen; a run that resumes reads it from the files of its model. Of a model
  // with random weights everything is saved.
  bool base_elsewhere = false;
  // Checkpoints and exports leave out what was added: each run gets its values from `values`, or from Init.
  bool added_elsewhere = false;
  // From the source of the model's values to one that it is read from instead; the source is empty where the
  // model begins with random weights. Called once for each run; what it returns is called on every rank for
  // each shard, from several threads. Reads the same values for every box, on meta none.
  std::function<ParameterSource(ParameterSource source)> values = {};
  // Each checkpoint has these in model/, and no model for transformers is written.
  std::optional<AddedFiles> files = {};
  std::string no_files = {};  // why there are none, where the transform makes them otherwise
  // Keys of the exported config.json that are added, or have these values in place of the model's.
  std::vector<Node::Entry> config = {};
  std::vector<std::string> warnings = {};
  std::string note;  // for the header of the run; may be empty
  // A section that turns the transform off.
  bool is_nothing() const {
    return frozen.empty() && added.empty() && derived.empty() && !values && !files && note.empty();
  }
};

// One of a run. May be called from several threads.
class HEDDLE_API ITransform {
 public:
  virtual ~ITransform();

  // Changes the units: called for each set of units that is made, on meta or with values, on every rank, for
  // dry steps and for sizes. Modules may be replaced, get children (add_child), links and seams; parameters
  // keep their names, shapes and dtypes (but those in `derived`), and none is removed. The same for every
  // call. Throws Error{config} at run.where for what does not fit the model.
  virtual Transformed apply(Units& units, const TransformRun& run) const = 0;

  // What changes the run's numbers, in short: a run that resumes with another text warns with both. Where
  // checkpoints hold what was added alone (base_elsewhere), it is refused, unless the text differs after a
  // ';' only. Empty: the fields of the section.
  virtual std::string setting() const { return ""; }
};

// Its name is the section at the top of a recipe that turns it on. plugin.transform<Mine>("mine", schema())
// offers Mine(Config).
struct OfferedTransform : OfferedSchema {
  static constexpr const char* kKind = "transform";
  int order = 0;                 // those of lower order act first; of one order by their names
  std::vector<Refusal> refuses;  // axes along which it cannot act, in the order in which they are checked
  // Further keys at the top of a recipe that belong to it. Its section is then a map: the value of its name,
  // and those of these keys where they are given.
  std::vector<std::string> keys = {};
  // The field of the section that names another model, as the section `model` does: TransformRun::other.
  std::string model_field = {};
  // The value of `recipe:` that has this section; a recipe of another name is refused. Empty: any has it.
  std::string recipe = {};
  std::function<std::unique_ptr<ITransform>(const Node& section)> make;
};

namespace transform {

// Makes `child` a child of `parent` under this name, after those it has: its parameters are then in
// checkpoints, its path in tensor plans. `child` must live as long as `parent`: a link or a seam of the
// parent that computes with it owns it.
HEDDLE_API void add_child(Module& parent, std::string name, Module& child);

// Adds styles for the axis tp to the plan of every unit, for modules that a transform adds.
HEDDLE_API void extend_tensor_plan(Units& units, const TensorPlan& styles);

// The names of the parameters that hold a match of the regular expression (ECMAScript), in the order of the
// units, each once. Throws Error{config} at `where` if there are none.
HEDDLE_API std::vector<std::string> parameters_matching(const Units& units, const std::string& expression,
                                                        const std::string& where);

// For Check of a schema: the value is a list of regular expressions. Throws Error{config} at the wrong one.
HEDDLE_API void check_expressions(const Node& value);

}  // namespace transform
}  // namespace heddle

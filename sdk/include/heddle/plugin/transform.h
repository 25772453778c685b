// ITransform, which modifies a model before anything else uses it: frozen parameters, adapters, replaced
// layers. The plugin kind `transform`, after torchtitan's ModelConverter.
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

// A model besides the model of the run.
struct OtherModel {
  std::shared_ptr<const ModelSpec> spec;
  ParameterSource source;             // values by the parameter names of its units; empty: random weights
  at::ScalarType dtype = at::kFloat;  // dtype of the stored weights
  std::string name;                   // its directory in the recipe; empty: random weights
};

// Facts about the run that a transform gets.
struct TransformRun {
  std::string where;                // the section, for errors: "run.yaml:3 freeze_config"
  uint64_t seed = 0;                // seed of the run
  std::string model = {};           // the model in the recipe; empty: random weights
  const ModelSpec* spec = nullptr;  // how files store parameters; null: unchanged
  // The model of OfferedTransform::model_field; null without that field, or if its files are not on this
  // machine.
  std::shared_ptr<const OtherModel> other_model = nullptr;
};

// How a file stores an added parameter: with dims permuted and then reshaped, or as boxes of a tensor that
// also contains other parameters.
struct AddedTensor {
  std::string name;            // name in the file, after the prefix
  std::vector<int64_t> dims;   // the parameter's dims, in the order of the file
  std::vector<int64_t> shape;  // shape of the tensor in the file
  StoredParts within = {};     // boxes of the tensor, instead of `dims`; empty: the whole tensor
};

// Files of the added parameters in their own format, such as a PEFT adapter.
struct AddedFiles {
  std::string weights;  // "adapter_model.safetensors": one tensor per added parameter
  std::string prefix;   // prefix of the tensor names
  // By parameter; without an entry the parameter is stored unchanged.
  std::map<std::string, AddedTensor> stored;
  std::vector<std::pair<std::string, std::string>> texts;  // further files: name and content
};

// Initial values that are computed from a parameter of the model as it is read, such as row norms or packed
// codes. Each rank computes only its own boxes, so the values do not depend on the parallelism.
struct Derived {
  std::string from;            // the parameter to read
  std::vector<int64_t> shape;  // shape, dtype and Init of that parameter in the model without transforms
  at::ScalarType dtype = at::kFloat;
  Init init = {};
  bool by_rows = false;  // whether `fill` needs only the rows of that parameter that the box covers
  // Writes box.tensor, on any device. from: in CPU memory. May be called from several threads.
  std::function<void(const Shard& box, const at::Tensor& from)> fill;
};

// The effects of a transform. The engine compares them with the units and refuses a transform with other
// effects, so that checkpoints, exports and the run's header can rely on them.
struct Transformed {
  std::vector<std::string> frozen;  // parameters that trained before and no longer do
  std::vector<std::string> added;   // new parameters, whose values come from their Init
  // Whether an exported model contains the added parameters as tensors of their names. If false, a run that
  // adds parameters and exports its model is refused.
  bool exports_added = false;
  // Derived initial values by parameter. If the parameter existed before, its own values are read; it may
  // have a different shape and dtype, and does not train.
  std::map<std::string, Derived> derived = {};
  // Whether checkpoints omit frozen parameters, which a resumed run reads from the files of its model. A
  // model with random weights is saved completely.
  bool base_elsewhere = false;
  // Whether checkpoints and exports omit added parameters, whose values each run gets from `values` or Init.
  bool added_elsewhere = false;
  // Returns a source that replaces the source of the model's values; the argument is empty if the model
  // starts from random weights. Called once per run. The result is called on every rank for each shard, from
  // several threads. It must return the same values for every box, and reads no values on meta.
  std::function<ParameterSource(ParameterSource source)> values = {};
  // Files that each checkpoint has in model/, instead of a model for transformers.
  std::optional<AddedFiles> files = {};
  std::string no_files = {};  // why there are no files, for a transform that usually has them
  // Keys to add to the exported config.json, or to replace in it.
  std::vector<Node::Entry> config = {};
  std::vector<std::string> warnings = {};
  std::string note;  // line in the header of the run; may be empty
  // Returns true for a section that disables the transform.
  bool is_nothing() const {
    return frozen.empty() && added.empty() && derived.empty() && !values && !files && note.empty();
  }
};

// A transform of a run. Several threads may call its functions.
class HEDDLE_API ITransform {
 public:
  virtual ~ITransform();

  // Transforms the units. Called for each set of units, on meta or with values, on every rank, also for dry
  // steps and to compute sizes, always with the same effects. It may replace modules and add children
  // (add_child), links and seams. Parameters keep their names, shapes and dtypes, except those in `derived`,
  // and none is removed. Throws Error{config} at run.where for a section that does not fit the model.
  virtual Transformed apply(Units& units, const TransformRun& run) const = 0;

  // Returns a short text of everything that affects results. A resumed run with a different text warns with
  // both texts. If checkpoints contain only added parameters (base_elsewhere), it is refused, unless the
  // texts differ only after a ';'. Empty: the fields of the section.
  virtual std::string setting() const { return ""; }
};

// A transform, whose name is the top-level section that enables it. plugin.transform<Mine>("mine", schema())
// offers a class with the constructor Mine(Config).
struct OfferedTransform : OfferedSchema {
  static constexpr const char* kKind = "transform";
  int order = 0;                 // transforms of lower order act first, and by name within one order
  std::vector<Refusal> refuses;  // axes along which it cannot act, in the order in which they are checked
  // Further top-level keys of a recipe that belong to the transform. Its section is then a map of the value
  // under its name and the values of these keys that are set.
  std::vector<std::string> keys = {};
  // The field of the section that describes another model, like `model`: TransformRun::other_model.
  std::string model_field = {};
  // The value of `recipe:` that this section requires; other recipes are refused. Empty: any recipe.
  std::string recipe = {};
  std::function<std::unique_ptr<ITransform>(const Node& section)> make;
};

namespace transform {

// Appends `child` to the children of `parent` under this name, so that its parameters are in checkpoints and
// its path in tensor plans. `child` must live as long as `parent`: a link or seam of the parent that uses it
// owns it.
HEDDLE_API void add_child(Module& parent, std::string name, Module& child);

// Adds styles for the axis tp to the tensor plan of every unit, for modules that a transform adds. Throws
// Error{config} for a unit without modules.
HEDDLE_API void extend_tensor_plan(Units& units, const TensorPlan& styles);

// Returns the names of the parameters that contain a match of the regular expression (ECMAScript), in the
// order of the units, each once. Throws Error{config} at `where` if there are none.
HEDDLE_API std::vector<std::string> parameters_matching(const Units& units, const std::string& expression,
                                                        const std::string& where);

// Checks that the value is a list of regular expressions, for Check of a schema. Throws Error{config} at an
// invalid one.
HEDDLE_API void check_expressions(const Node& value);

}  // namespace transform
}  // namespace heddle

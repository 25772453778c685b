// A family of models: from the keys of a Hugging Face config.json to the model that they describe. The plugin
// kind `model`; after torchtitan's TrainSpec.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/config/node.h"
#include "heddle/model/stored.h"
#include "heddle/model/unit.h"

namespace heddle {

// What a trainer has to know of any model.
struct ModelFacts {
  std::string model_type;     // as config.json says it
  int64_t vocabulary = 0;     // tokens are 0 .. vocabulary - 1
  int64_t max_positions = 0;  // the longest sequence
  std::string dtype;          // of the stored weights: "float32", "bfloat16"; empty: config.json does not say
};

// One model: what a config.json describes. Makes no tensor but in make_units(). Calls may come from several
// threads.
class HEDDLE_API ModelSpec {
 public:
  virtual ~ModelSpec();

  virtual ModelFacts facts() const = 0;

  // The units in execution order (see unit.h), with the model's plan for the axis tp. On meta the parameters
  // have no values; elsewhere they are drawn from the device's default generator.
  virtual Units make_units(const at::TensorOptions& options) const = 0;

  // What makes two models one: a checkpoint goes on only in a run whose model has the same.
  virtual std::map<std::string, std::string> signature() const = 0;

  // A config.json that transformers reads back to the same model, stored in `dtype` ("float32", ...).
  virtual std::string config_json(const std::string& dtype) const = 0;

  // Floating-point operations of forward and backward for one token of a sequence of that many, a multiply
  // and an add as two; without what activation checkpointing computes again.
  virtual double flops_per_token(int64_t sequence) const = 0;

  // How the parameter lies in the files of a Hugging Face directory. `shape` is the whole parameter's.
  virtual StoredParts stored(const std::string& parameter, std::span<const int64_t> shape) const;

  // Other names that files have for a tensor; the first that is there is read.
  virtual std::vector<std::string> other_names(const std::string& tensor) const;

  // A tensor of files that belongs to no parameter and is rightly passed over, such as a saved mask.
  virtual bool passes_over(const std::string& tensor) const;
};

// Keys that a family does not know: an error in a YAML; in a config.json only where a known key is near.
enum class UnknownKeys { refused, passed_over };

class HEDDLE_API IModelFamily {
 public:
  virtual ~IModelFamily();

  // `keys` is the map of a config.json; its model_type is a name that the family offers. Throws Error{config}
  // at the key: unknown, impossible, or one that transformers would compute otherwise.
  virtual std::unique_ptr<ModelSpec> read(const Node& keys, UnknownKeys unknown) const = 0;
};

}  // namespace heddle

// IModelFamily, the plugin kind `model`: creates a model from a Hugging Face config.json. After torchtitan's
// TrainSpec.
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

struct BenchmarkSizes;  // heddle/decoder/benchmark.h

// Facts about a model that a trainer needs.
struct ModelFacts {
  std::string model_type;     // model_type in config.json
  int64_t vocabulary = 0;     // vocabulary size
  int64_t max_positions = 0;  // longest sequence
  std::string dtype;  // dtype of the stored weights: "float32", "bfloat16"; empty if config.json has none
  // The reason why sequences may not exceed max_positions, for messages: "n_positions: each position has a
  // learned vector". Empty if the limit is max_position_embeddings, which a config.json may raise.
  std::string positions_reason = {};
  // Floating-point operations of a step by NeMo AutoModel's formula for the model_type, for the figures of a
  // benchmark recipe. null selects the general formula.
  double (*benchmark)(const BenchmarkSizes& sizes) = nullptr;
};

// A model described by a config.json. Only make_units() creates tensors. Several threads may call its
// functions.
class HEDDLE_API ModelSpec {
 public:
  virtual ~ModelSpec();

  virtual ModelFacts facts() const = 0;

  // Returns the units in execution order (unit.h), with the model's plan for the axis tp. On meta the
  // parameters have no values. On other devices they are drawn from the device's default generator, and a run
  // uses the values of the first rank of each stage.
  virtual Units make_units(const at::TensorOptions& options) const = 0;

  // Identifies the model. A run resumes only from a checkpoint of a model with the same signature. Keys that
  // change names or sizes of parameters must change the signature. Keys that affect only results need not: a
  // checkpoint also has config_json(), and a resumed run warns for each key that differs.
  virtual std::map<std::string, std::string> signature() const = 0;

  // Returns a config.json that transformers reads as the same model, with weights stored in `dtype`
  // ("float32", ...). Its model_type is one that the plugin offers. The engine reads it back when it reads
  // the model, and throws if the signature or the text differs.
  virtual std::string config_json(const std::string& dtype) const = 0;

  // Returns the floating-point operations of forward and backward per token, for sequences of this length. A
  // multiply-add counts as 2. Excludes recomputation.
  virtual double flops_per_token(int64_t sequence) const = 0;

  // Returns how the files of a Hugging Face directory store the parameter. shape: of the whole parameter.
  virtual StoredParts stored(const std::string& parameter, std::span<const int64_t> shape) const;

  // Returns alternative names of a tensor in files. The first one that exists is read.
  virtual std::vector<std::string> other_names(const std::string& tensor) const;

  // Returns whether a tensor in files belongs to no parameter and is ignored, such as a saved mask.
  virtual bool passes_over(const std::string& tensor) const;

  // Returns the keys of its config.json that have no effect with its other keys, each with the reason: the
  // coefficient of a loss that is not computed. A run that sets such a key warns.
  virtual std::map<std::string, std::string> idle_keys() const;
};

// Treatment of unknown keys. refused: any unknown key is an error (YAML). passed_over: only an unknown key
// similar to a known key is an error (config.json).
enum class UnknownKeys { refused, passed_over };

// Creates models from the config.json of a family.
class HEDDLE_API IModelFamily {
 public:
  virtual ~IModelFamily();

  // Reads a model. keys: the map of a config.json, whose model_type is one that the family offers. Throws
  // Error{config} at a key that is unknown, invalid, or has a value with which transformers would compute
  // differently.
  virtual std::unique_ptr<ModelSpec> read(const Node& keys, UnknownKeys unknown) const = 0;

  // Returns the keys, with their values, that NeMo AutoModel's module for this model_type sets. They apply if
  // a recipe names AutoModel's class, unless the recipe or config.json sets them.
  virtual std::vector<Node::Entry> automodel_keys(const std::string& model_type) const;
};

}  // namespace heddle

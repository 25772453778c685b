// A family of models: from the keys of a Hugging Face config.json to the model. The plugin kind `model`;
// after torchtitan's TrainSpec.
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

// What a trainer must know of any model.
struct ModelFacts {
  std::string model_type;     // as in config.json
  int64_t vocabulary = 0;     // tokens are 0 .. vocabulary - 1
  int64_t max_positions = 0;  // the longest sequence
  std::string dtype;          // of the stored weights: "float32", "bfloat16"; empty: not in config.json
  // Why no sequence is longer than max_positions, for messages: "n_positions: each position has a learned
  // vector". Empty: max_position_embeddings, which a config.json may raise.
  std::string positions_reason = {};
  // Floating-point operations of a step by NeMo AutoModel's formula for the model_type, for the figures of a
  // benchmark recipe. Null: the formula of models without one of their own.
  double (*benchmark)(const BenchmarkSizes& sizes) = nullptr;
};

// One model, described by a config.json. Only make_units() makes tensors. May be called from several threads.
class HEDDLE_API ModelSpec {
 public:
  virtual ~ModelSpec();

  virtual ModelFacts facts() const = 0;

  // The units in execution order (see unit.h), with the model's plan for the axis tp. On meta the parameters
  // have no values; elsewhere they are drawn from the device's default generator, and a run takes those of
  // the first rank of each stage.
  virtual Units make_units(const at::TensorOptions& options) const = 0;

  // Identifies the model: a checkpoint is resumed only by a run whose model has the same signature. Another
  // value of a key that changes names or sizes of parameters changes it. Keys that change numbers alone need
  // not: a checkpoint also keeps config_json(), and a run that resumes warns of each key that differs.
  virtual std::map<std::string, std::string> signature() const = 0;

  // A config.json that transformers reads back to the same model, stored in `dtype` ("float32", ...). Its
  // model_type is one that the plugin offers. The engine reads it back when it reads the model, and refuses
  // one that gives another signature, or another text.
  virtual std::string config_json(const std::string& dtype) const = 0;

  // Floating-point operations of forward and backward for one token of a sequence of that many, a multiply
  // and an add as two; without recomputation.
  virtual double flops_per_token(int64_t sequence) const = 0;

  // How the parameter is stored in the files of a Hugging Face directory. `shape` is the whole parameter's.
  virtual StoredParts stored(const std::string& parameter, std::span<const int64_t> shape) const;

  // Alternative names of a tensor in files; the first that exists is read.
  virtual std::vector<std::string> other_names(const std::string& tensor) const;

  // Whether a tensor of files belongs to no parameter and is ignored, such as a saved mask.
  virtual bool passes_over(const std::string& tensor) const;

  // Keys of its config.json that do nothing beside its other keys, each with the reason: the coefficient of a
  // loss that is not computed. A run that sets one of them warns.
  virtual std::map<std::string, std::string> idle_keys() const;
};

// Unknown keys: an error in a YAML; in a config.json only if a known key is similar.
enum class UnknownKeys { refused, passed_over };

class HEDDLE_API IModelFamily {
 public:
  virtual ~IModelFamily();

  // `keys` is the map of a config.json; its model_type is a name that the family offers. Throws Error{config}
  // at the key: unknown, invalid, or one that transformers would compute differently.
  virtual std::unique_ptr<ModelSpec> read(const Node& keys, UnknownKeys unknown) const = 0;

  // Keys that NeMo AutoModel's module for this model_type gives a model, with their values: a recipe that
  // names AutoModel's class has them, unless it or config.json says otherwise.
  virtual std::vector<Node::Entry> automodel_keys(const std::string& model_type) const;
};

}  // namespace heddle

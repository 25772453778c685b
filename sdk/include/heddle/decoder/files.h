// How the tensors of a family's files follow from the parameters of its models: names and layouts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/model/stored.h"

namespace heddle::decoder {

// The tensors of experts: "<layer>.experts.N.<gate>.weight" for each, or one for all.
struct ExpertFiles {
  std::string layer = "mlp";
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
  std::string router = "gate";
  std::string correction = "gate.e_score_correction_bias";  // the bias that chooses experts
  bool correction_row = false;                              // it lies as [1, experts] (ERNIE 4.5)
  // One tensor for all experts and each product: matrices lie as [in, out] (GPT-OSS) or, not `transposed`, as
  // [out, in] (Qwen3.5); there gate and up may be `apart`, "<layer>.<gate>.weight" (Step-3.5).
  bool stacked = false, transposed = true, apart = false;
  std::string memory = "mlp";  // the module in memory; of others the router's names above are not changed
};

// Rules of names and layouts. A name is whole segments of a path: "self_attn.o_proj" is in
// "model.layers.3.self_attn.o_proj.weight". Without a rule a parameter is the tensor of its name. Rules act
// in this order: experts, joined, widened, transposed, renamed.
class HEDDLE_API Files {
 public:
  // One tensor holds the rows of these modules' weights, and one their biases, in this order.
  Files& joined(std::string module, std::vector<std::string> parts);
  // The same in turn: rows of each part are `groups` runs, and the tensor has the first run of each part,
  // then the second of each, and so on (Qwen3-Next: a run for each head of keys).
  Files& in_turn(std::string module, std::vector<std::string> parts, int64_t groups);
  // Weights of this module lie as [in, out].
  Files& transposed(std::string module);
  Files& renamed(std::string name, std::string in_files);
  // The tensor of this parameter of one dim has so many dims of size 1 before and behind it.
  Files& widened(std::string parameter, size_t before, size_t behind);
  Files& experts(ExpertFiles files);
  // Tensors whose names end so belong to no parameter.
  Files& ignored(std::string ending);
  // Nor do tensors of this module.
  Files& ignored_module(std::string module);
  // A tensor whose name begins so may begin otherwise in files that are read: an older name, or a prefix.
  Files& otherwise(std::string beginning, std::string instead);

  // The number of rows of a parameter of the model; empty: it has no such parameter.
  using Rows = std::function<std::optional<int64_t>(const std::string& parameter)>;
  // Empty: the tensor of the parameter's name. A parameter that a transform adds is joined with no other.
  // Throws Error{internal} for a rule that joins a parameter with one that the model lacks.
  StoredParts parts(const std::string& parameter, std::span<const int64_t> shape, const Rows& rows) const;
  std::string in_files(std::string name) const;  // renamed
  std::vector<std::string> other_names(const std::string& tensor) const;
  bool ignores(const std::string& tensor) const;

 private:
  StoredParts structure(const std::string& parameter, std::span<const int64_t> shape, const Rows& rows) const;

  struct Joined {
    std::string module;
    std::vector<std::string> parts;
    int64_t groups = 1;
  };
  struct Widened {
    std::string parameter;
    size_t before = 0, behind = 0;
  };
  std::vector<Joined> joined_;
  std::vector<Widened> widened_;
  std::vector<std::string> transposed_, ignored_, ignored_modules_;
  std::vector<std::pair<std::string, std::string>> renamed_, otherwise_;
  ExpertFiles experts_ = {};
};

}  // namespace heddle::decoder

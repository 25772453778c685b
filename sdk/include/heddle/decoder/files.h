// Rules that derive tensors of checkpoint files, with names and layouts, from the parameters of a model.
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

// The tensors of experts: "<layer>.experts.N.<gate>.weight" per expert, or stacked.
struct ExpertFiles {
  std::string layer = "mlp";
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
  std::string router = "gate";
  std::string correction = "gate.e_score_correction_bias";  // the bias for the selection of experts
  bool correction_row = false;                              // the bias has the shape [1, experts] (ERNIE 4.5)
  // One tensor per product for all experts, with matrices [in, out] (GPT-OSS), or [out, in] if not
  // `transposed` (Qwen3.5). If not transposed, gate and up may be separate (`apart`), "<layer>.<gate>.weight"
  // (Step-3.5).
  bool stacked = false, transposed = true, apart = false;
  std::string memory = "mlp";  // the module in memory; the router names above apply only to "mlp"
};

// Rules for names and layouts. A rule's name matches whole segments of a path: "self_attn.o_proj" matches
// "model.layers.3.self_attn.o_proj.weight". Without a rule a parameter is the tensor of the same name. Rules
// apply in this order: experts, joined, widened, transposed, renamed.
class HEDDLE_API Files {
 public:
  // One tensor concatenates the rows of these modules' weights in this order, and another one their biases.
  Files& joined(std::string module, std::vector<std::string> parts);
  // Like joined(), but interleaved: the rows of each part consist of `groups` runs, and the tensor has the
  // first run of each part, then the second run of each, and so on (Qwen3-Next: one run per key head).
  Files& in_turn(std::string module, std::vector<std::string> parts, int64_t groups);
  // Weights of this module are stored as [in, out].
  Files& transposed(std::string module);
  Files& renamed(std::string name, std::string in_files);
  // The tensor of this one-dimensional parameter has this many dims of size 1 before and after it.
  Files& widened(std::string parameter, size_t before, size_t behind);
  Files& experts(ExpertFiles files);
  // Tensors whose names end with `ending` belong to no parameter.
  Files& ignored(std::string ending);
  // Tensors of this module belong to no parameter.
  Files& ignored_module(std::string module);
  // In files that are read, names that begin with `beginning` may begin with `instead`: an older name or a
  // prefix.
  Files& otherwise(std::string beginning, std::string instead);

  // Returns the number of rows of a parameter, or empty if the model does not have it.
  using Rows = std::function<std::optional<int64_t>(const std::string& parameter)>;
  // Returns the stored parts of a parameter; empty: the tensor of the same name. A parameter that a transform
  // added is not joined. Throws Error{internal} for a rule that joins a parameter with one that the model
  // lacks.
  StoredParts parts(const std::string& parameter, std::span<const int64_t> shape, const Rows& rows) const;
  std::string in_files(std::string name) const;  // applies renamed()
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

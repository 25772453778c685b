// Reads `optimizer:`, `clip_grad_norm:` and `loss_fn:`.
#include <array>
#include <limits>

#include "core/base/pattern.h"
#include "lib/run/recipe/component.h"
#include "lib/run/recipe/fields.h"
#include "lib/run/recipe/readers.h"

namespace heddle {

const ConfigSchema<ParameterGroup>& group_schema() {
  static const auto schema =
      ConfigSchema<ParameterGroup>()
          .field("pattern", &ParameterGroup::pattern,
                 "A regular expression; parameters whose names hold a match.")
          .field("lr_mult", &ParameterGroup::lr_mult, "Their learning rate is multiplied by this.")
          .field("wd_mult", &ParameterGroup::wd_mult, "Their weight decay is multiplied by this.");
  return schema;
}

template <>
struct FieldType<ParameterGroup> : SectionField<ParameterGroup, &group_schema> {};

// A number above 0, or a word for infinity.
struct NormType {
  double p = 2.0;
};

template <>
struct FieldType<NormType> {
  static std::string type_name() { return "number above 0, or inf"; }
  static NormType read(const Node& value) {
    const bool word =
        value.kind() == Node::Kind::text && (value.as_text() == "inf" || value.as_text() == "infinity");
    const double p = word ? std::numeric_limits<double>::infinity() : value.as_real();
    if (p > 0) return {p};
    throw Error(ErrorCode::config, value.where(),
                "norm_type must be above 0, or inf, got " + value.written());
  }
  static Node write(const NormType& value) { return Node::real(value.p); }
};

namespace recipe {
namespace {

struct OptimizerFields {
  std::optional<std::string> target;
  double lr = 1e-4;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0.01;
  bool master_weights = false;
  std::optional<bool> fused, foreach;
  bool amsgrad = false, maximize = false, capturable = false, differentiable = false;
  std::vector<ParameterGroup> groups;
};

const ConfigSchema<OptimizerFields>& optimizer_schema() {
  using W = OptimizerFields;
  static const auto schema =
      ConfigSchema<W>()
          .field("_target_", &W::target, "AdamW.")
          .field("lr", &W::lr, "Learning rate; the highest, when there is an lr_scheduler.")
          .field("betas", &W::betas, "Decay of the two moments.")
          .field("eps", &W::eps, "Added to the root of the second moment.")
          .field("weight_decay", &W::weight_decay, "Decoupled, on every parameter.")
          .field("master_weights", &W::master_weights, "float32 copies of parameters stored in bfloat16.")
          .field("fused", &W::fused, "The kernel is always the fused one.")
          .field("foreach", &W::foreach, "The kernel is always the fused one.")
          .field("amsgrad", &W::amsgrad, "The largest second moment so far.")
          .later("amsgrad", "the fused kernel runs without it")
          .field("maximize", &W::maximize, "Go up instead of down.")
          .later("maximize", "losses are made small")
          .field("capturable", &W::capturable, "For CUDA graphs.")
          .later("capturable", "CUDA graphs come later")
          .field("differentiable", &W::differentiable, "Gradients through the update.")
          .later("differentiable", "the update is in place")
          .field("param_group_overrides", &W::groups, "Other learning rates and decays by name.");
  return schema;
}

const std::array<std::string, 2> kOptimizers = {"AdamW", "adamw"};
// One formula: the sum of the token losses in float32.
const std::array<std::string, 4> kLosses = {"MaskedCrossEntropy", "FusedLinearCrossEntropy",
                                            "TEParallelCrossEntropy", "ChunkedCrossEntropy"};

void require(const Node& section, const std::string& key, bool holds, const std::string& what) {
  if (!holds) throw Error(ErrorCode::config, where_of(section, key), key + " must be " + what);
}

// The place of each pattern.
std::vector<std::string> check_groups(const Node& section, const std::vector<ParameterGroup>& groups) {
  std::vector<std::string> places;
  for (size_t i = 0; i < groups.size(); ++i) {
    const Node& at = section.find("param_group_overrides")->items()[i];
    if (groups[i].pattern.empty()) throw Error(ErrorCode::config, at.where(), "pattern is missing");
    if (groups[i].lr_mult < 0 || groups[i].wd_mult < 0)
      throw Error(ErrorCode::config, at.where(), "lr_mult and wd_mult must not be negative");
    places.push_back(where_of(at, "pattern"));
    text::Pattern(groups[i].pattern, places.back());
  }
  return places;
}

}  // namespace

std::vector<FieldInfo> optimizer_fields() {
  return optimizer_schema().fields();
}

std::vector<FieldInfo> group_fields() {
  return group_schema().fields();
}

OptimizerSection read_optimizer(const Node& section, NotBuilt& not_built) {
  component(section, kOptimizers, "AdamW");
  const OptimizerFields words = optimizer_schema().read(section);
  require(section, "lr", words.lr >= 0, "0 or more");
  require(section, "betas", words.betas.size() == 2, "two numbers");
  for (const double beta : words.betas) require(section, "betas", beta >= 0 && beta < 1, "from 0 to below 1");
  require(section, "eps", words.eps >= 0, "0 or more");
  require(section, "weight_decay", words.weight_decay >= 0, "0 or more");
  std::vector<std::string> places = check_groups(section, words.groups);
  add_not_built(not_built, "optimizer", optimizer_schema(), words);
  return {{words.lr, words.betas[0], words.betas[1], words.eps, words.weight_decay},
          words.master_weights,
          words.groups,
          std::move(places)};
}

namespace {

struct Clipping {
  std::optional<double> max_norm = 1.0;
  NormType norm_type;
};

struct Loss {
  std::optional<std::string> target;
  bool fp32_upcast = true;
  int64_t ignore_index = Batch::kIgnore;
  std::string reduction = "sum";
  double logit_softcapping = 0;
  Node chunk_len, compile, tp_group;
};

const ConfigSchema<Clipping>& clipping_schema() {
  static const auto schema =
      ConfigSchema<Clipping>()
          .field("max_norm", &Clipping::max_norm, "The largest gradient norm; null: no clipping.")
          .field("norm_type", &Clipping::norm_type, "p of the norm; inf: the largest number.");
  return schema;
}

const ConfigSchema<Loss>& loss_schema() {
  static const auto schema =
      ConfigSchema<Loss>()
          .field("_target_", &Loss::target,
                 "MaskedCrossEntropy, FusedLinearCrossEntropy, "
                 "TEParallelCrossEntropy or ChunkedCrossEntropy: one formula.")
          .field("fp32_upcast", &Loss::fp32_upcast,
                 "The loss is computed in float32, also where this is false.")
          .field("ignore_index", &Loss::ignore_index, "Labels that count nothing.")
          .later("ignore_index", "labels of -100 count nothing")
          .field("reduction", &Loss::reduction, "The sum, over the label tokens.")
          .later("reduction", "the loss is the sum over the number of label tokens")
          .field("logit_softcapping", &Loss::logit_softcapping, "Of the logits; 0: the model's own.")
          .later("logit_softcapping", "the soft cap is that of the model")
          .field("chunk_len", &Loss::chunk_len, "Rows are cut as the kernel needs.")
          .field("compile", &Loss::compile, "The loss is a kernel already.")
          .field("tp_group", &Loss::tp_group, "The group is that of the axis tp.");
  return schema;
}

}  // namespace

std::vector<FieldInfo> clipping_fields() {
  return clipping_schema().fields();
}

std::vector<FieldInfo> loss_fields() {
  return loss_schema().fields();
}

std::pair<std::optional<double>, double> read_clipping(const Node& given) {
  const bool is_number = given.kind() == Node::Kind::integer || given.kind() == Node::Kind::real;
  const Node section = is_number ? Node::map({{"max_norm", given}}, given.mark(), given.path()) : given;
  const Clipping clipping = clipping_schema().read(section);
  require(section, "max_norm", !clipping.max_norm || *clipping.max_norm > 0,
          "greater than 0, or null for no clipping");
  return {clipping.max_norm, clipping.norm_type.p};
}

void read_loss(const Node& section, RecipeNotes& notes) {
  component(section, kLosses, "MaskedCrossEntropy");
  const Loss words = loss_schema().read(section);
  add_not_built(notes.not_built, "loss_fn", loss_schema(), words);
  if (!words.fp32_upcast)
    notes.skipped.push_back({"loss_fn.fp32_upcast", "the loss is computed in float32 in any case"});
}

}  // namespace recipe
}  // namespace heddle

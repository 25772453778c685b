// Reads `optimizer:`, `clip_grad_norm:` and `loss_fn:`.
#include <algorithm>
#include <array>
#include <limits>

#include "core/base/pattern.h"
#include "heddle/base/text.h"
#include "heddle/plugin/optimizer.h"
#include "lib/data/section_keys.h"
#include "lib/run/recipe/fields.h"
#include "lib/run/recipe/readers.h"
#include "lib/run/recipe/recipe.h"

namespace heddle {

const ConfigSchema<ParameterGroup>& group_schema() {
  static const auto schema =
      ConfigSchema<ParameterGroup>()
          .field("pattern", &ParameterGroup::pattern,
                 "Regular expression that selects the parameters whose names contain a match.",
                 Check{"", [](const Node& value) { text::Pattern(value.as_text(), value.where()); }})
          .field("lr_mult", &ParameterGroup::lr_mult, "Factor of the learning rate for the group.",
                 at_least(0.0, "must be 0 or more"))
          .field("wd_mult", &ParameterGroup::wd_mult, "Factor of the weight decay for the group.",
                 at_least(0.0, "must be 0 or more"))
          .rule(
              [](const ParameterGroup& group) { return group.pattern.empty() ? "pattern is missing" : ""; });
  return schema;
}

template <>
struct FieldType<ParameterGroup> : SectionField<ParameterGroup, &group_schema> {};

// Reads all groups and reports their errors together.
template <>
struct FieldType<std::vector<ParameterGroup>> {
  static std::string type_name() { return "list of map"; }
  static std::vector<ParameterGroup> read(const Node& value) {
    if (!value.is_list())
      throw Error(ErrorCode::config, value.where(), "expected a " + type_name() + ", got " + value.written());
    Errors errors;
    std::vector<ParameterGroup> out;
    for (const Node& item : value.items()) errors.attempt([&] { out.push_back(group_schema().read(item)); });
    errors.raise();
    return out;
  }
  static Node write(const std::vector<ParameterGroup>& value) {
    std::vector<Node> items;
    for (const ParameterGroup& item : value) items.push_back(group_schema().write(item));
    return Node::list(std::move(items));
  }
};

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
  std::optional<double> lr, weight_decay;
  bool master_weights = false;
  std::vector<ParameterGroup> groups;
};

const ConfigSchema<OptimizerFields>& optimizer_schema() {
  using W = OptimizerFields;
  static const auto schema =
      ConfigSchema<W>()
          .field("_target_", &W::target,
                 "Class of the optimizer. The last component is its name. Default: AdamW.")
          .field("lr", &W::lr,
                 "Learning rate, with an lr_scheduler the highest. Default: that of the optimizer.",
                 at_least(0.0, "must be 0 or more"))
          .field("weight_decay", &W::weight_decay,
                 "Weight decay of every parameter. Default: that of the optimizer.",
                 at_least(0.0, "must be 0 or more"))
          .field("master_weights", &W::master_weights,
                 "Keep float32 copies of parameters that are stored in bfloat16.")
          .field("param_group_overrides", &W::groups,
                 "Factors of learning rate and weight decay for groups of parameters.");
  return schema;
}

// Returns the keys that all optimizers share (`common`), or the other keys.
Node keys_of(const Node& section, bool common) {
  const auto& fields = optimizer_schema().fields();
  std::vector<Node::Entry> entries;
  for (const auto& entry : section.entries()) {
    const bool is_common = std::any_of(fields.begin(), fields.end(),
                                       [&](const FieldInfo& field) { return field.key == entry.first; });
    if (is_common == common) entries.push_back(entry);
  }
  return Node::map(std::move(entries), section.mark(), section.path());
}

}  // namespace

std::vector<FieldInfo> optimizer_fields() {
  return optimizer_schema().fields();
}

std::vector<FieldInfo> group_fields() {
  return group_schema().fields();
}

void read_optimizer(const Node& section, OptimizerSection& out) {
  if (!section.is_map()) (void)optimizer_schema().read(section);  // throws
  const Node* target = section.find("_target_");
  out.where = key_location(section, "_target_");
  out.own = keys_of(section, false);
  if (target != nullptr && target->kind() == Node::Kind::text)
    out.name = target->as_text().substr(target->as_text().find_last_of(".:") + 1);
  SectionErrors found;
  const OptimizerFields words = optimizer_schema().read(keys_of(section, true), found);
  out.lr = words.lr;
  out.weight_decay = words.weight_decay;
  out.master_weights = words.master_weights;
  out.groups = words.groups;
  found.errors.raise();
  for (size_t i = 0; i < out.groups.size(); ++i)
    out.groups_where.push_back(key_location(section.find("param_group_overrides")->items()[i], "pattern"));
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
          .field("max_norm", &Clipping::max_norm, "Maximum gradient norm. null disables clipping.",
                 Check{"above 0",
                       [](const Node& value) {
                         if (!value.is_null() && !(value.as_real() > 0))
                           throw Error(ErrorCode::config, value.where(),
                                       "max_norm must be greater than 0, got " + value.written(),
                                       "set it to 1.0, or to null to disable clipping");
                       }})
          .field("norm_type", &Clipping::norm_type, "Order p of the norm. inf: the largest absolute value.");
  return schema;
}

const ConfigSchema<Loss>& loss_schema() {
  static const auto schema =
      ConfigSchema<Loss>()
          .field("_target_", &Loss::target,
                 "Class of the loss. All classes compute the sum of token losses in float32.",
                 ends_in({"MaskedCrossEntropy", "FusedLinearCrossEntropy", "TEParallelCrossEntropy",
                          "ChunkedCrossEntropy"}))
          .field("fp32_upcast", &Loss::fp32_upcast, "Ignored: the loss is always computed in float32.")
          .field("ignore_index", &Loss::ignore_index, "Label of tokens that have no loss.")
          .later("ignore_index", "only the label -100 is ignored")
          .field("reduction", &Loss::reduction, "Reduction over the label tokens.")
          .later("reduction", "the loss is the sum over the number of label tokens")
          .field("logit_softcapping", &Loss::logit_softcapping,
                 "Soft cap of the logits. 0: that of the model.")
          .later("logit_softcapping", "the soft cap is that of the model")
          .field("chunk_len", &Loss::chunk_len, "Ignored: the kernel sets the size of its chunks.")
          .field("compile", &Loss::compile, "Ignored: the loss is one kernel.")
          .field("tp_group", &Loss::tp_group, "Ignored: the group is that of the mesh axis tp.");
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
  return {clipping.max_norm, clipping.norm_type.p};
}

void read_loss(const Node& section, RecipeNotes& notes) {
  const Loss words = loss_schema().read(section);
  add_not_built(notes.not_built, "loss_fn", loss_schema(), words);
  if (!words.fp32_upcast)
    notes.skipped.push_back({"loss_fn.fp32_upcast", "the loss is always computed in float32"});
}

}  // namespace recipe

namespace {

// Returns the keys that this optimizer has. Adds an error for each other key.
Node known_keys(const Node& own, const OfferedOptimizer& offered, Errors& errors) {
  std::vector<std::string> known, unknown;
  for (const auto& fields : {recipe::optimizer_fields(), offered.fields})
    for (const FieldInfo& field : fields) known.push_back(field.key);
  for (const auto& [key, value] : own.entries()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string nearest = text::nearest(key, known);
    errors.add(Error(ErrorCode::config, value.where(), "unknown key '" + text::excerpt(key) + "'",
                     nearest.empty() ? "the keys of " + offered.name + " are " + text::join(known)
                                     : "did you mean '" + nearest + "'?"));
    unknown.push_back(key);
  }
  return recipe::without_keys(own, unknown);
}

// Returns the section for OfferedOptimizer::make, with learning rates of some parameters as factors of lr.
Node with_rate_factors(Node own, const OfferedOptimizer& offered, double lr) {
  for (const std::string& key : offered.rate_keys) {
    const Node* rate = own.find(key);
    if (rate == nullptr || rate->is_null()) continue;
    if (lr == 0)
      throw Error(
          ErrorCode::config, rate->where(), key + " is a learning rate, but lr is 0",
          "set lr to a number above 0; to freeze parameters, use param_group_overrides with lr_mult 0");
    own = own.with(key, Node::real(FieldType<double>::read(*rate) / lr));
  }
  return own;
}

}  // namespace

OptimizerSection resolve_optimizer(OptimizerSection section, PluginRegistry& plugins,
                                   std::vector<std::string>& not_built) {
  const auto* offered = plugins.find<OfferedOptimizer>(section.name);
  if (offered == nullptr) {
    const Error missing = plugins.missing(OfferedOptimizer::kKind, section.name);
    throw Error(missing.code(), section.where, missing.message(), missing.hint());
  }
  Errors errors;
  Resolved resolved;
  const Node known = known_keys(section.own, *offered, errors);
  errors.attempt([&] { resolved = offered->resolve(known); });
  errors.raise();
  if (!offered->not_built.empty()) not_built.push_back("optimizer._target_: " + offered->not_built);
  for (const std::string& one : resolved.not_built) not_built.push_back("optimizer." + one);
  section.name = offered->name;
  section.lr = section.lr.value_or(offered->lr);
  section.weight_decay = section.weight_decay.value_or(offered->weight_decay);
  section.fields = resolved.values;
  const Node* copies = section.fields.find(offered->master_weights_key);
  if (copies != nullptr && !copies->is_null()) section.master_weights = true;
  section.no_effect = offered->no_effect;
  section.make = [make = offered->make, own = with_rate_factors(section.own, *offered, *section.lr)] {
    return make(own);
  };
  return section;
}

}  // namespace heddle

// make_squad_dataset: rows of context, question and answers.
#include "heddle/plugin/dataset.h"
#include "heddle/plugin/entry_point.h"

namespace heddle::squad {
namespace {

struct SquadConfig {
  std::optional<std::string> dataset_name = "squad", chat_template;
  std::string split = "train";
  std::optional<int64_t> seq_length, limit_dataset_samples;
  Node padding = Node::boolean(false), truncation = Node::boolean(false);
  bool fp8 = false, exact_answer_mask = false;
};

ConfigSchema<SquadConfig> squad_schema() {
  using C = SquadConfig;
  return with_row_fields(
      ConfigSchema<C>()
          .field("dataset_name", &C::dataset_name, "A name of the hub, a directory or a file.")
          .field("split", &C::split, "train, validation, or slices: train[:1000], train[:10%]+validation.")
          .field("limit_dataset_samples", &C::limit_dataset_samples,
                 "The first rows alone; a split with a slice of its own has precedence.",
                 at_least<int64_t>(1))
          .field("chat_template", &C::chat_template,
                 "A Jinja template, or a file with one; null: the tokenizer's. Without any: one text.")
          .field("exact_answer_mask", &C::exact_answer_mask,
                 "Without a template: the answer begins where its characters do; false: as NeMo AutoModel "
                 "counts.")
          .field("fp8", &C::fp8, "No effect, as in NeMo AutoModel."));
}

}  // namespace
}  // namespace heddle::squad

HEDDLE_PLUGIN("squad", "0.1.0", "dataset make_squad_dataset") {
  plugin.texts("make_squad_dataset", heddle::squad::squad_schema(), {"squad.py", {"dataset_name"}});
}

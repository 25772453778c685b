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
          .field("dataset_name", &C::dataset_name, "Hub name of the data set, a directory or a file.")
          .field("split", &C::split,
                 "Split to use: train, validation, or slices such as train[:10%]+validation.")
          .field("limit_dataset_samples", &C::limit_dataset_samples,
                 "Number of rows to use, from the first. A slice in split overrides it.",
                 at_least<int64_t>(1))
          .field("chat_template", &C::chat_template,
                 "Chat template: Jinja text, or a file that contains it. null: the tokenizer's template. "
                 "Without any template, the prompt and the answer are one text.")
          .field("exact_answer_mask", &C::exact_answer_mask,
                 "Locate the first answer token by its characters, without a chat template. false: count "
                 "tokens as NeMo AutoModel does.")
          .field("fp8", &C::fp8, "Ignored, as in NeMo AutoModel."));
}

}  // namespace
}  // namespace heddle::squad

HEDDLE_PLUGIN("squad", "0.1.0", "dataset make_squad_dataset") {
  plugin.texts("make_squad_dataset", heddle::squad::squad_schema(), {"squad.py", {"dataset_name"}});
}

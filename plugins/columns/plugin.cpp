// ColumnMappedTextInstructionDataset: rows whose columns are a context, a question and an answer.
#include "heddle/plugin/dataset.h"
#include "heddle/plugin/entry_point.h"

namespace heddle::columns {
namespace {

struct ColumnsConfig {
  Node path_or_dataset_id;
  Node column_mapping = Node::map({});
  std::optional<std::string> split = "train", name;
  std::optional<int64_t> seq_length, limit_dataset_samples;
  Node padding = Node::text("do_not_pad"), truncation = Node::text("do_not_truncate");
  bool answer_only_loss_mask = true, use_hf_chat_template = false, exact_answer_mask = false;
};

ConfigSchema<ColumnsConfig> columns_schema() {
  using C = ColumnsConfig;
  return with_row_fields(
      ConfigSchema<C>()
          .field("path_or_dataset_id", &C::path_or_dataset_id,
                 "A JSON or JSONL file, a list of them, a directory or a name of the hub; required.")
          .field("column_mapping", &C::column_mapping,
                 "{context, question, answer}: the columns; answer, and one or two of the others.")
          .field("split", &C::split, "Of a data set of the hub: train, or slices: train[:1000].")
          .field("name", &C::name, "The configuration of a data set of the hub that has several.")
          .field("limit_dataset_samples", &C::limit_dataset_samples, "The first rows alone.",
                 at_least<int64_t>(1))
          .field("answer_only_loss_mask", &C::answer_only_loss_mask, "false: the prompt is trained on too.")
          .field("exact_answer_mask", &C::exact_answer_mask,
                 "The answer begins where its characters do; false: as NeMo AutoModel counts.")
          .field("use_hf_chat_template", &C::use_hf_chat_template,
                 "Context, question and answer are the system, the user and the assistant of the tokenizer's "
                 "chat template."));
}

}  // namespace
}  // namespace heddle::columns

HEDDLE_PLUGIN("columns", "0.1.0", "dataset ColumnMappedTextInstructionDataset") {
  plugin.texts("ColumnMappedTextInstructionDataset", heddle::columns::columns_schema(),
               {"columns.py", {"path_or_dataset_id"}, {"path_or_dataset_id"}});
}

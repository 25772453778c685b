// ColumnMappedTextInstructionDataset: rows with columns for a context, a question and an answer.
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
                 "A JSON or JSONL file, a list of files, a directory or a hub name. Required.")
          .field("column_mapping", &C::column_mapping,
                 "Columns of the context, the question and the answer: {context, question, answer}. answer "
                 "is required, with context, question or both.")
          .field("split", &C::split, "Split of a hub data set: train, or a slice such as train[:1000].")
          .field("name", &C::name, "Configuration of a hub data set that has several.")
          .field("limit_dataset_samples", &C::limit_dataset_samples, "Number of rows to use, from the first.",
                 at_least<int64_t>(1))
          .field("answer_only_loss_mask", &C::answer_only_loss_mask,
                 "Mask the labels of the prompt. false: train on the prompt too.")
          .field(
              "exact_answer_mask", &C::exact_answer_mask,
              "Locate the first answer token by its characters. false: count tokens as NeMo AutoModel does.")
          .field("use_hf_chat_template", &C::use_hf_chat_template,
                 "Render context, question and answer as the system, user and assistant messages of the "
                 "tokenizer's chat template."));
}

}  // namespace
}  // namespace heddle::columns

HEDDLE_PLUGIN("columns", "0.1.0", "dataset ColumnMappedTextInstructionDataset") {
  plugin.texts("ColumnMappedTextInstructionDataset", heddle::columns::columns_schema(),
               {"columns.py", {"path_or_dataset_id"}, {"path_or_dataset_id"}});
}

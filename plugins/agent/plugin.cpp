// make_agent_chat_dataset and make_xlam_dataset: conversations with tool calls.
#include "heddle/plugin/dataset.h"
#include "heddle/plugin/entry_point.h"

namespace heddle::agent {
namespace {

struct AgentConfig {
  std::optional<std::string> dataset_name, revision, chat_template;
  Node path;
  std::string split = "train";
  std::optional<int64_t> seq_length, limit_dataset_samples;
  Node padding = Node::boolean(false), truncation = Node::boolean(false);
  bool filter_no_assistant = false, filter_overlong = false, drop_overlong = false,
       trim_incomplete_last_turn = false, truncate_history = false, mask_reasoning_content = false,
       train_on_last_turn_only = false, drop_history_reasoning_content = false;
};

ConfigSchema<AgentConfig> agent_schema() {
  using C = AgentConfig;
  return with_row_fields(
      ConfigSchema<C>()
          .field("dataset_name", &C::dataset_name,
                 "Hub name of the data set, or a directory. Set either dataset_name or path.")
          .field("path", &C::path, "A JSON or JSONL file, or a list of files.")
          .field("revision", &C::revision, "Revision of the hub data set. null: main.")
          .field("split", &C::split, "Split to use: train, or a slice such as train[:1000].")
          .field("limit_dataset_samples", &C::limit_dataset_samples,
                 "Number of rows to use, from the first. A slice in split overrides it.",
                 at_least<int64_t>(1))
          .field("chat_template", &C::chat_template,
                 "Chat template: Jinja text, or a file that contains it. null: the tokenizer's template.")
          .field("filter_no_assistant", &C::filter_no_assistant, "Discard rows without an assistant message.")
          .field("filter_overlong", &C::filter_overlong,
                 "Count rows longer than seq_length. Like NeMo AutoModel, this discards no row.")
          .field("drop_overlong", &C::drop_overlong, "Discard the rows that filter_overlong counts.")
          .field("trim_incomplete_last_turn", &C::trim_incomplete_last_turn,
                 "Discard the messages after the last assistant message.")
          .field("truncate_history", &C::truncate_history,
                 "Discard the oldest exchanges of a row until it fits seq_length.")
          .field("mask_reasoning_content", &C::mask_reasoning_content,
                 "Keep reasoning in the input but mask its labels.")
          .field("train_on_last_turn_only", &C::train_on_last_turn_only,
                 "Train only on the last assistant message.")
          .field("drop_history_reasoning_content", &C::drop_history_reasoning_content,
                 "Keep reasoning only in the last assistant message."));
}

struct XlamConfig {
  std::optional<std::string> dataset_name = "Salesforce/xlam-function-calling-60k";
  std::string split = "train";
  std::optional<int64_t> seq_length, limit_dataset_samples;
  Node padding = Node::boolean(false), truncation = Node::boolean(false);
  bool fp8 = false;
};

ConfigSchema<XlamConfig> xlam_schema() {
  using C = XlamConfig;
  return with_row_fields(
      ConfigSchema<C>()
          .field("dataset_name", &C::dataset_name, "Hub name of the data set, a directory or a file.")
          .field("split", &C::split, "Split to use: train, or a slice such as train[:1000].")
          .field("limit_dataset_samples", &C::limit_dataset_samples,
                 "Number of rows to use, from the first. A slice in split overrides it.",
                 at_least<int64_t>(1))
          .field("fp8", &C::fp8, "Ignored, as in NeMo AutoModel."));
}

}  // namespace
}  // namespace heddle::agent

HEDDLE_PLUGIN("agent", "0.1.0", "dataset make_agent_chat_dataset", "dataset make_xlam_dataset") {
  using namespace heddle::agent;
  plugin.texts("make_agent_chat_dataset", agent_schema(), {"agent.py", {"dataset_name", "path"}, {"path"}});
  plugin.texts("make_xlam_dataset", xlam_schema(), {"xlam.py", {"dataset_name"}});
}

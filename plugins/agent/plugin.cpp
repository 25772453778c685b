// make_agent_chat_dataset and make_xlam_dataset: conversations with calls of tools.
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
          .field("dataset_name", &C::dataset_name, "A name of the hub or a directory; this or path.")
          .field("path", &C::path, "A JSON or JSONL file, or a list of them.")
          .field("revision", &C::revision, "Of the data set of the hub; null: main.")
          .field("split", &C::split, "train, or slices: train[:1000].")
          .field("limit_dataset_samples", &C::limit_dataset_samples,
                 "The first rows alone; a split with a slice of its own has precedence.",
                 at_least<int64_t>(1))
          .field("chat_template", &C::chat_template,
                 "A Jinja template, or a file with one; null: the tokenizer's.")
          .field("filter_no_assistant", &C::filter_no_assistant, "Rows without an answer are left out.")
          .field("filter_overlong", &C::filter_overlong,
                 "Counts rows longer than seq_length; leaves none out, as NeMo AutoModel does.")
          .field("drop_overlong", &C::drop_overlong,
                 "With filter_overlong: rows that are too long are left out.")
          .field("trim_incomplete_last_turn", &C::trim_incomplete_last_turn,
                 "A row ends with its last answer.")
          .field("truncate_history", &C::truncate_history,
                 "The oldest exchanges of a row are left out until it fits into seq_length.")
          .field("mask_reasoning_content", &C::mask_reasoning_content,
                 "Reasoning is read and not trained on.")
          .field("train_on_last_turn_only", &C::train_on_last_turn_only,
                 "Only the last answer is trained on.")
          .field("drop_history_reasoning_content", &C::drop_history_reasoning_content,
                 "Only the last answer keeps its reasoning."));
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
          .field("dataset_name", &C::dataset_name, "A name of the hub, a directory or a file.")
          .field("split", &C::split, "train, or slices: train[:1000].")
          .field("limit_dataset_samples", &C::limit_dataset_samples,
                 "The first rows alone; a split with a slice of its own has precedence.",
                 at_least<int64_t>(1))
          .field("fp8", &C::fp8, "No effect, as in NeMo AutoModel."));
}

}  // namespace
}  // namespace heddle::agent

HEDDLE_PLUGIN("agent", "0.1.0", "dataset make_agent_chat_dataset", "dataset make_xlam_dataset") {
  using namespace heddle::agent;
  plugin.texts("make_agent_chat_dataset", agent_schema(), {"agent.py", {"dataset_name", "path"}, {"path"}});
  plugin.texts("make_xlam_dataset", xlam_schema(), {"xlam.py", {"dataset_name"}});
}

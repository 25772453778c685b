// ChatDataset: conversations, rendered by a chat template.
#include "heddle/plugin/dataset.h"
#include "heddle/plugin/entry_point.h"

namespace heddle::chat {
namespace {

struct ChatConfig {
  Node path_or_dataset_id;
  std::optional<std::string> split, name, chat_template, start_of_turn_token;
  std::optional<int64_t> seq_length, shuffle_seed;
  Node padding = Node::text("do_not_pad"), truncation = Node::text("do_not_truncate");
  bool mask_reasoning_content = false, mask_history = false, unshifted = false, skip_invalid_samples = false;
};

ConfigSchema<ChatConfig> chat_schema() {
  using C = ChatConfig;
  return with_row_fields(
      ConfigSchema<C>()
          .field("path_or_dataset_id", &C::path_or_dataset_id,
                 "A JSON or JSONL file, a list of them, a directory or a name of the hub; required.")
          .field("split", &C::split,
                 "Of a data set of the hub: train, or slices: train[:1000]. Needed there.")
          .field("name", &C::name, "The configuration of a data set of the hub that has several.")
          .field("chat_template", &C::chat_template,
                 "A Jinja template, or a file with one; null: the tokenizer's.")
          .field("shuffle_seed", &C::shuffle_seed, "Mixes the rows before slices are taken.")
          .field("mask_reasoning_content", &C::mask_reasoning_content,
                 "Reasoning is read and not trained on.")
          .field("mask_history", &C::mask_history, "Only the last answer of a conversation is trained on.")
          .field("skip_invalid_samples", &C::skip_invalid_samples,
                 "Leaves out rows that are wrong, whatever the reason, with a warning for each reason.")
          .field("unshifted", &C::unshifted, "Labels beside their own tokens.")
          .later("unshifted", "labels are those of the next tokens")
          .field("start_of_turn_token", &C::start_of_turn_token, "No effect, as in NeMo AutoModel."));
}

}  // namespace
}  // namespace heddle::chat

HEDDLE_PLUGIN("chat", "0.1.0", "dataset ChatDataset") {
  plugin.texts("ChatDataset", heddle::chat::chat_schema(),
               {"chat.py", {"path_or_dataset_id"}, {"path_or_dataset_id"}});
}

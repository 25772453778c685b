// ChatDataset: conversations that a chat template renders.
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
                 "A JSON or JSONL file, a list of files, a directory or a hub name. Required.")
          .field(
              "split", &C::split,
              "Split of a hub data set: train, or a slice such as train[:1000]. Required for a hub data set.")
          .field("name", &C::name, "Configuration of a hub data set that has several.")
          .field("chat_template", &C::chat_template,
                 "Chat template: Jinja text, or a file that contains it. null: the tokenizer's template.")
          .field("shuffle_seed", &C::shuffle_seed,
                 "Seed that shuffles the rows before slices are taken. null: no shuffle.")
          .field("mask_reasoning_content", &C::mask_reasoning_content,
                 "Keep reasoning in the input but mask its labels.")
          .field("mask_history", &C::mask_history,
                 "Train only on the last assistant message of a conversation.")
          .field("skip_invalid_samples", &C::skip_invalid_samples,
                 "Discard invalid rows with one warning per reason, instead of failing.")
          .field("unshifted", &C::unshifted,
                 "Do not shift labels: each label is the token at its own position.")
          .later("unshifted", "labels are always the next tokens")
          .field("start_of_turn_token", &C::start_of_turn_token, "Ignored, as in NeMo AutoModel."));
}

}  // namespace
}  // namespace heddle::chat

HEDDLE_PLUGIN("chat", "0.1.0", "dataset ChatDataset") {
  plugin.texts("ChatDataset", heddle::chat::chat_schema(),
               {"chat.py", {"path_or_dataset_id"}, {"path_or_dataset_id"}});
}

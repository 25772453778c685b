// Text keys of a multimodal model's configuration.
#include "heddle/decoder/text_family.h"

#include "heddle/base/text.h"

namespace heddle::decoder {
namespace {

constexpr const char* kText = "text_config";
constexpr const char* kTied = "tie_word_embeddings";

}  // namespace

Node text_keys(const Node& keys) {
  const Node* text = model::given(keys, kText);
  if (text == nullptr) return keys;
  if (!text->is_map()) model::refuse(*text, "expected a map of the text's keys, got " + text->written());
  const Node* tied = model::given(keys, kTied);
  return tied == nullptr ? *text : text->with(kTied, *tied);
}

std::vector<FieldInfo> text_table(std::span<const std::string> types) {
  return {{kText, "map", "", "",
           "Keys of the text model, whose model_type is " + text::join(types, " or ") + ".", ""},
          {kTied, "bool or null", "null", "", "Overrides tie_word_embeddings of text_config.", ""}};
}

void refuse_text(const Node& keys, std::span<const std::string> types) {
  const Node& at = *keys.find("model_type");
  model::refuse(at, "text of the model_type " + at.written() + " is not built; known: " + text::join(types));
}

}  // namespace heddle::decoder

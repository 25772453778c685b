// The text part of a multimodal model.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/decoder/family.h"

namespace heddle::decoder {

// Returns text_config, with tie_word_embeddings of the whole model if it is set. Without text_config returns
// the keys themselves. Throws Error{config} if text_config is not a map.
HEDDLE_API Node text_keys(const Node& keys);
HEDDLE_API std::vector<FieldInfo> text_table(std::span<const std::string> types);
[[noreturn]] HEDDLE_API void refuse_text(const Node& keys, std::span<const std::string> types);

// A choice of families, selected by model_type of `text_config`; without the key, the first one. Weights
// of other parts are ignored (Files::ignored_module), and the trained model is exported as a text model. For
// Offer::model: plugin.model<TextFamily<a, b>>("name", TextFamily<a, b>::table()).
template <auto... descriptions>
class TextFamily : public IModelFamily {
 public:
  std::unique_ptr<ModelSpec> read(const Node& keys, UnknownKeys unknown) const override {
    if (unknown == UnknownKeys::refused) model::check_keys(keys, table(), unknown);
    const Node text = text_keys(keys);
    const std::string type = model::text_or(text, "model_type", types()[0]);
    std::unique_ptr<ModelSpec> out;
    const auto read_if = [&]<auto description>(const Family<description>& family) {
      if (type == description().model_type) out = family.read(text, unknown);
    };
    (read_if(Family<descriptions>()), ...);
    if (out == nullptr) refuse_text(text, types());
    return out;
  }
  std::vector<Node::Entry> automodel_keys(const std::string&) const override {
    return std::get<0>(std::tie(descriptions()...)).automodel_keys;
  }
  static std::vector<FieldInfo> table() { return text_table(types()); }

 private:
  static std::vector<std::string> types() { return {descriptions().model_type...}; }
};

}  // namespace heddle::decoder

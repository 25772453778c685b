// Reads `validation_samples:`.
#include "lib/data/section_keys.h"
#include "lib/run/recipe/fields.h"
#include "lib/run/recipe/readers.h"

namespace heddle::recipe {
namespace {

void check_prompts(const Node& prompts) {
  for (const Node& prompt : prompts.items())
    if (prompt.kind() != Node::Kind::text || prompt.as_text().empty())
      throw Error(ErrorCode::config, prompt.where(), "expected a non-empty text, got " + prompt.written(),
                  "quote the prompt");
  if (prompts.size() == 0)
    throw Error(ErrorCode::config, prompts.where(), "expected a list of texts, got " + prompts.written(),
                "prompts: [\"In the beginning\"]");
}

const ConfigSchema<SamplesSection>& samples_schema() {
  using W = SamplesSection;
  static const auto schema =
      ConfigSchema<W>()
          .field("prompts", &W::prompts, "Texts that the model continues at every validation.",
                 Check{"", check_prompts})
          .field("chat", &W::chat, "Render each prompt with the chat template as a user message.")
          .field("max_new_tokens", &W::max_new_tokens, "Maximum number of tokens per answer.",
                 Range<int64_t>{1, kLargestSize})
          .field("temperature", &W::temperature, "Sampling temperature. 0 selects the most likely token.",
                 at_least(0.0))
          .field("top_k", &W::top_k, "Sample from the k most likely tokens. 0: from all tokens.",
                 at_least<int64_t>(0))
          .field("top_p", &W::top_p, "Sample from the most likely tokens whose probabilities sum to top_p.",
                 Range<double>{0, 1})
          .field("seed", &W::seed, "Seed of sampling, the same at every validation.", at_least<int64_t>(0))
          .rule([](const W& w) { return w.prompts.empty() ? "prompts is missing" : ""; });
  return schema;
}

}  // namespace

std::vector<FieldInfo> samples_fields() {
  return samples_schema().fields();
}

SamplesSection read_samples(const Node& section) {
  if (section.is_map() && section.size() == 0) return {};
  SamplesSection samples = samples_schema().read(section);
  samples.where = key_location(section, "prompts");
  return samples;
}

}  // namespace heddle::recipe

// Reads `validation_samples:`.
#include "lib/data/section_keys.h"
#include "lib/run/recipe/fields.h"
#include "lib/run/recipe/readers.h"

namespace heddle::recipe {
namespace {

struct SamplesFields {
  Node prompts = Node::list({});
  SamplesSection values;
  bool chat = values.chat;
  int64_t max_new_tokens = values.max_new_tokens, top_k = values.top_k, seed = values.seed;
  double temperature = values.temperature, top_p = values.top_p;
};

const ConfigSchema<SamplesFields>& samples_schema() {
  using W = SamplesFields;
  static const auto schema =
      ConfigSchema<W>()
          .field("prompts", &W::prompts,
                 "A list of texts, each of which the model continues at every validation.")
          .field("chat", &W::chat, "A prompt is a user's message: the model answers it by its chat template.")
          .field("max_new_tokens", &W::max_new_tokens, "The most tokens of an answer.",
                 Range<int64_t>{1, kLargestSize})
          .field("temperature", &W::temperature, "Of the draws; 0: the likeliest token.", at_least(0.0))
          .field("top_k", &W::top_k, "Draw among the k likeliest tokens; 0: among all.", at_least<int64_t>(0))
          .field("top_p", &W::top_p, "Draw among the likeliest tokens that have this probability together.",
                 Range<double>{0, 1})
          .field("seed", &W::seed, "Of the draws, the same at every validation.", at_least<int64_t>(0));
  return schema;
}

std::vector<std::string> prompts_of(const Node& section, const Node& given) {
  std::vector<std::string> out;
  if (given.kind() == Node::Kind::list)
    for (const Node& one : given.items()) {
      if (one.kind() != Node::Kind::text || one.as_text().empty())
        throw Error(ErrorCode::config, one.where(), "expected a text that is not empty, got " + one.written(),
                    "quote the prompt");
      out.push_back(one.as_text());
    }
  if (out.empty())
    throw Error(ErrorCode::config, where_of(section, "prompts"),
                "expected a list of texts, got " + given.written(), "prompts: [\"In the beginning\"]");
  return out;
}

}  // namespace

std::vector<FieldInfo> samples_fields() {
  return samples_schema().fields();
}

SamplesSection read_samples(const Node& section) {
  if (section.is_map() && section.size() == 0) return {};
  SectionErrors found;
  const SamplesFields words = read_fields(samples_schema(), section, found);
  SamplesSection out;
  found.check({"prompts"}, [&] { out.prompts = prompts_of(section, words.prompts); });
  found.errors.raise();
  out.chat = words.chat;
  out.max_new_tokens = words.max_new_tokens;
  out.temperature = words.temperature;
  out.top_k = words.top_k;
  out.top_p = words.top_p;
  out.seed = words.seed;
  out.where = where_of(section, "prompts");
  return out;
}

}  // namespace heddle::recipe

// Styles by their words, patterns segment by segment, and the plan of the Llama family.
#include "plan.h"

#include <array>
#include <string_view>
#include <utility>

#include "heddle/base/text.h"

namespace heddle::tensor {
namespace {

constexpr std::array<std::pair<const char*, Style>, 7> kStyles = {{
    {"colwise", Style::colwise},
    {"rowwise", Style::rowwise},
    {"colwise_rep", Style::colwise_rep},
    {"rowwise_rep", Style::rowwise_rep},
    {"sequence_parallel", Style::sequence_parallel},
    {"replicated", Style::replicated},
    {"replicated_with_grad_allreduce", Style::replicated_with_grad_allreduce},
}};

Style read_style(const Node& value) {
  std::vector<std::string> words;
  for (const auto& [word, style] : kStyles) {
    if (value.kind() == Node::Kind::text && value.as_text() == word) return style;
    words.push_back(word);
  }
  const std::string written = value.kind() == Node::Kind::text ? value.as_text() : value.written();
  const std::string near = text::nearest(written, words);
  throw Error(ErrorCode::config, value.where(), "Unknown parallel style: " + written,
              (near.empty() ? "" : "did you mean '" + near + "'? ") + "there are " + text::join(words));
}

// One segment, with `*` and `?`.
bool fits(std::string_view pattern, std::string_view segment) {
  if (pattern.empty()) return segment.empty();
  if (pattern.front() == '*')
    return fits(pattern.substr(1), segment) || (!segment.empty() && fits(pattern, segment.substr(1)));
  if (segment.empty() || (pattern.front() != '?' && pattern.front() != segment.front())) return false;
  return fits(pattern.substr(1), segment.substr(1));
}

}  // namespace

std::string word_of(Style style) {
  for (const auto& [word, known] : kStyles)
    if (known == style) return word;
  return "";
}

Rules read_rules(const Node& map) {
  Rules rules;
  for (const auto& [pattern, value] : map.entries())
    rules.push_back({pattern, read_style(value), value.where()});
  return rules;
}

Rules llama_rules(bool sequence_parallel) {
  const std::string where = "the plan of Llama";
  Rules rules = {{"model.embed_tokens", Style::rowwise_rep, where}};
  for (const char* inward :
       {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"})
    rules.push_back({std::string("model.layers.*.") + inward, Style::colwise, where});
  for (const char* outward : {"self_attn.o_proj", "mlp.down_proj"})
    rules.push_back({std::string("model.layers.*.") + outward, Style::rowwise, where});
  rules.push_back({"lm_head", Style::colwise, where});
  if (sequence_parallel)
    for (const char* norm :
         {"model.layers.*.input_layernorm", "model.layers.*.post_attention_layernorm", "model.norm"})
      rules.push_back({norm, Style::sequence_parallel, where});
  return rules;
}

bool matches(const std::string& pattern, const std::string& path) {
  std::string_view left = pattern, right = path;
  while (true) {
    const size_t end = left.find('.'), stop = right.find('.');
    if (!fits(left.substr(0, end), right.substr(0, stop))) return false;
    if (end == left.npos || stop == right.npos) return end == left.npos && stop == right.npos;
    left.remove_prefix(end + 1);
    right.remove_prefix(stop + 1);
  }
}

}  // namespace heddle::tensor

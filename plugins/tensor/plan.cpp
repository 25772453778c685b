// Parsing of styles, matching of patterns by segment, and the model's own plan.
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
  throw Error(
      ErrorCode::config, value.where(), "Unknown parallel style: " + written,
      (near.empty() ? "" : "did you mean '" + near + "'? ") + "supported styles: " + text::join(words));
}

// Matches one segment with `*` and `?`.
bool fits(std::string_view pattern, std::string_view segment) {
  if (pattern.empty()) return segment.empty();
  if (pattern.front() == '*')
    return fits(pattern.substr(1), segment) || (!segment.empty() && fits(pattern, segment.substr(1)));
  if (segment.empty() || (pattern.front() != '?' && pattern.front() != segment.front())) return false;
  return fits(pattern.substr(1), segment.substr(1));
}

}  // namespace

std::string style_name(Style style) {
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

Rules rules_of(const Units& units) {
  const TensorPlan* plan = nullptr;
  for (const auto& unit : units)
    if (plan == nullptr) plan = unit->tensor_plan();
  Rules rules;
  if (plan == nullptr) return rules;
  const std::string where = "the model's own tensor-parallel plan";
  for (const auto& [pattern, style] : *plan)
    rules.push_back({pattern, read_style(Node::text(style, {where, 0, 0}, "")), where});
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

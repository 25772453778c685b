// Reduces the sizes of a model. Sizes depend on each other, so each is tried again until none shrinks.
#include "small_keys.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "../attempt.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/attention_core.h"

namespace heddle::kits {
namespace {

constexpr int64_t kSmall = 16;
constexpr int kPasses = 3;

bool has_word(const FieldInfo& field, const std::string& word) {
  return field.key.find(word) != field.key.npos;
}

// Returns small values for a size, the best first: an uneven one if the family allows it.
std::vector<int64_t> sizes_for(const FieldInfo& field) {
  if (has_word(field, "token_id")) return {};
  if (has_word(field, "position") || has_word(field, "_ctx") || has_word(field, "seq")) return {32, 64};
  if (has_word(field, "layer")) return {3, 4};
  if (has_word(field, "vocab")) return {29, 32, 64, 128};
  if (has_word(field, "expert") && !has_word(field, "size")) return {4, 8, 16, 32, 64};
  if (has_word(field, "head") && !has_word(field, "dim")) return {4, 2, 8};
  return {14, 16, 24, 32, 48, 64, 96, 128, 256};
}

}  // namespace

Node value_of(const FieldInfo& field, const Node& keys) {
  if (const Node* given = keys.find(field.key)) return *given;
  try {
    return field.default_value.empty() ? Node() : config::read_text(field.default_value, "default");
  } catch (const Error&) {
    return Node();  // the text is not YAML
  }
}

namespace {

bool accepts(const OfferedModel& offered, const Node& keys) {
  try {
    return !read_model(offered, keys)->make_units(at::kMeta).empty();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::plugin_failed) throw;
    return false;
  }
}

bool is_dropout(const FieldInfo& field) {
  const bool number = field.type.starts_with("float") || field.type.starts_with("number");
  return number && (has_word(field, "dropout") || has_word(field, "pdrop"));
}

// Sets keys that require a value: "resid_pdrop" with default 0.1 and range 0.0. Dropout, which few families
// support, becomes 0.
Node with_forced(const std::vector<FieldInfo>& tables, Node keys) {
  for (const FieldInfo& field : tables) {
    if (keys.find(field.key) != nullptr || field.range == field.default_value) continue;
    if (is_dropout(field)) {
      keys = keys.with(field.key, Node::real(0));
      continue;
    }
    if (field.range.empty()) continue;
    char* end = nullptr;
    (void)std::strtod(field.range.c_str(), &end);
    if (*end == '\0') keys = keys.with(field.key, config::read_text(field.range, "range"));
  }
  return keys;
}

// Sets one missing key ("num_experts_per_tok is missing"): the first key that makes the model readable, with
// its default or a small size.
Node with_missing(const OfferedModel& offered, const std::vector<FieldInfo>& tables, const Node& keys) {
  for (const FieldInfo& field : tables) {
    if (keys.find(field.key) != nullptr || field.type.rfind("int", 0) != 0) continue;
    std::vector<Node> values = {value_of(field, keys)};
    for (const int64_t size : sizes_for(field)) values.push_back(Node::integer(size));
    for (const Node& value : values)
      if (const Node more = keys.with(field.key, value); !value.is_null() && accepts(offered, more))
        return more;
  }
  return keys;
}

// Splits "silu, swish" into words.
std::vector<std::string> words_of(const std::string& range) {
  std::vector<std::string> out(1);
  for (const char letter : range) {
    if (letter == ',')
      out.emplace_back();
    else if (letter != ' ')
      out.back() += letter;
  }
  return out;
}

bool shrinks(const OfferedModel& offered, const FieldInfo& field, Node& keys) {
  if (field.type.rfind("int", 0) != 0) return false;
  const Node now = value_of(field, keys);
  if (now.kind() != Node::Kind::integer) return false;
  const bool layers = has_word(field, "layer");
  if (now.as_integer() <= (layers ? 4 : kSmall)) return false;
  for (const int64_t size : sizes_for(field)) {
    if (size >= now.as_integer()) continue;
    const Node smaller = keys.with(field.key, Node::integer(size));
    if (!accepts(offered, smaller)) continue;
    keys = smaller;
    return true;
  }
  return false;
}

// Removes the padding token, whose embedding row gets no gradient from the look-up, unlike its finite
// difference.
Node without_padding(const OfferedModel& offered, const std::vector<FieldInfo>& tables, const Node& keys) {
  for (const FieldInfo& field : tables) {
    if (field.key != "pad_token_id" || keys.find(field.key) != nullptr) continue;
    const Node without = keys.with(field.key, Node());
    return accepts(offered, without) ? without : keys;
  }
  return keys;
}

bool has_mixer(const OfferedModel& offered, const Node& keys) {
  bool found = false;
  model::visit(read_model(offered, keys)->make_units(at::kMeta), [&](const std::string&, Module& module) {
    found = found || module.traits().role == Role::mixer;
  });
  return found;
}

bool has_sharp_scores(const OfferedModel& offered, const Node& keys) {
  bool found = false;
  model::each<AttentionCore>(
      read_model(offered, keys)->make_units(at::kMeta), [&](const std::string&, const AttentionCore& core) {
        found = found || core.options().scale * static_cast<double>(core.head_dim()) > 8;
      });
  return found;
}

// Raises the eps of norms. A mixer with fast decay gives rows near zero, and a norm of such rows amplifies
// rounding: 1e-7 in a weight becomes 5e-3 in a gradient. A larger eps keeps it small and comparisons sharp. A
// sharp softmax has the same effect and needs an even larger eps.
Node with_soft_norms(const OfferedModel& offered, const std::vector<FieldInfo>& tables, const Node& keys) {
  const bool sharp = has_sharp_scores(offered, keys);
  if (!sharp && !has_mixer(offered, keys)) return keys;
  for (const FieldInfo& field : tables) {
    if (!field.key.ends_with("norm_eps") || keys.find(field.key) != nullptr) continue;
    const Node soft = keys.with(field.key, Node::real(sharp ? 0.3 : 0.01));
    return accepts(offered, soft) ? soft : keys;
  }
  return keys;
}

// Narrows heads. Undivided scores of normalized heads grow with the head width, and a sharp softmax amplifies
// rounding, as above.
Node with_soft_scores(const OfferedModel& offered, const std::vector<FieldInfo>& tables, Node keys) {
  if (!has_sharp_scores(offered, keys)) return keys;
  for (const FieldInfo& field : tables) {
    if (!field.key.ends_with("head_dim")) continue;
    const Node narrow = keys.with(field.key, Node::integer(4));
    if (accepts(offered, narrow)) keys = narrow;
  }
  return keys;
}

}  // namespace

std::unique_ptr<ModelSpec> read_model(const OfferedModel& offered, const Node& keys) {
  return offered.make()->read(keys, UnknownKeys::passed_over);
}

Node small_keys(const OfferedModel& offered, const std::vector<FieldInfo>& tables, const Node& given) {
  Node keys = given;
  if (!accepts(offered, keys)) keys = with_forced(tables, keys);
  if (!accepts(offered, keys)) keys = with_missing(offered, tables, keys);
  try {
    (void)read_model(offered, keys)->make_units(at::kMeta);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::plugin_failed) throw;
    throw NotRun{"its default keys are refused; set other keys with --fields: " + error.message()};
  }
  for (int pass = 0; pass < kPasses; ++pass) {
    bool any = false;
    for (const FieldInfo& field : tables) any = shrinks(offered, field, keys) || any;
    if (!any) break;
  }
  keys = with_soft_norms(offered, tables, without_padding(offered, tables, keys));
  return with_soft_scores(offered, tables, keys);
}

std::vector<Node> other_values(const FieldInfo& field, const Node& now) {
  std::vector<Node> out;
  const bool optional = field.type.find("null") != field.type.npos;
  const std::string type = field.type.substr(0, field.type.find(' '));
  if (type == "bool")
    for (const bool other : {true, false}) out.push_back(Node::boolean(other));
  if (type == "int" || type == "integer") {
    const int64_t value = now.kind() == Node::Kind::integer ? now.as_integer() : 4;
    for (const int64_t other : {value + 1, value - 1, value * 2, value / 2, value + 2, int64_t{1}, int64_t{2},
                                int64_t{3}, int64_t{4}, int64_t{6}, int64_t{8}, int64_t{12}, int64_t{16}})
      out.push_back(Node::integer(other));
  }
  if (type == "float" || type == "real" || type == "number") {
    const double value = now.is_null() ? 1.0 : now.as_real();
    // The first value has many digits, which must survive config.json.
    for (const double other : {value * 1.234567, value * 2, value / 2, value + 1, 0.5, 0.01, 0.1234567})
      out.push_back(Node::real(other));
  }
  const bool dtype = field.key.find("dtype") != field.key.npos && field.range.empty();
  if (type == "str" || type == "word" || type == "dtype")
    for (const std::string& word : words_of(dtype ? "bfloat16, float32" : field.range))
      if (!word.empty()) out.push_back(Node::text(word));
  if (optional && !now.is_null()) out.emplace_back();
  const auto same = [&](const Node& other) { return other == now; };
  out.erase(std::remove_if(out.begin(), out.end(), same), out.end());
  return out;
}

}  // namespace heddle::kits

// Inference of the data-parallel size, and every check of sizes.
#include "heddle/engine/degrees.h"

#include <algorithm>
#include <limits>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle::engine {
namespace {

std::string number(int64_t value) {
  return std::to_string(value);
}

// Where a key stands, or the section when it is not given.
std::string where(const Node& section, std::string_view key) {
  const Node* node = section.find(key);
  const std::string at = node != nullptr ? node->where() : section.where();
  return at.empty() ? "distributed" : at;
}

int degree(const Node& section, const std::string& key, int otherwise) {
  const Node* node = section.find(key);
  if (node == nullptr || node->is_null()) return otherwise;
  if (node->kind() != Node::Kind::integer)
    throw Error(ErrorCode::config, where(section, key),
                key + " must be an integer or null, got " + node->written());
  const int64_t value = node->as_integer();
  if (value > std::numeric_limits<int>::max())
    throw Error(ErrorCode::config, where(section, key), key + " is too large: " + node->written());
  return value > 0 ? static_cast<int>(value) : otherwise;
}

[[noreturn]] void refuse(const Asking& asking, std::string_view key, const std::string& text,
                         std::string hint = "") {
  throw Error(ErrorCode::mesh, where(asking.section, key), text, std::move(hint));
}

std::string parallelism(std::string_view axis) {
  if (axis == "tp") return "tensor parallelism";
  if (axis == "pp") return "pipeline parallelism";
  if (axis == "cp") return "context parallelism";
  return "expert parallelism";
}

void check_what_is_refused(const Degrees& degrees, const Needs& needs, const Asking& asking) {
  if (degrees.dp_replicate > 1 && !has(needs.axes, "dp_replicate"))
    refuse(
        asking, "dp_replicate_size",
        "dp_replicate_size is only supported with " +
            (asking.replicating.empty() ? "a strategy that has it" : text::join(asking.replicating, " or ")),
        "leave dp_replicate_size out, or choose another strategy");
  for (const Refusal& refusal : needs.refuses)
    if (degrees.of(refusal.axis + "_size") > 1) refuse(asking, refusal.axis + "_size", refusal.text);
  for (const std::string_view axis : {"tp", "pp", "cp"})
    if (degrees.of(std::string(axis) + "_size") > 1 && !has(needs.axes, axis))
      refuse(asking, std::string(axis) + "_size", asking.strategy + " does not support " + parallelism(axis));
}

// The degrees that share the world with data parallelism, in the order of the messages.
std::vector<std::string> factors(const Degrees& degrees, const Needs& needs) {
  std::vector<std::string> keys;
  for (const std::string_view axis : {"tp", "cp", "pp"})
    if (has(needs.axes, axis) &&
        (degrees.of(std::string(axis) + "_size") > 1 || !has(needs.axes_when_used, axis)))
      keys.push_back(std::string(axis) + "_size");
  return keys;
}

// The largest number where the product is larger.
int64_t times(int64_t a, int64_t b) {
  int64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? std::numeric_limits<int64_t>::max() : out;
}

int64_t product(const Degrees& degrees, const std::vector<std::string>& keys) {
  int64_t out = 1;
  for (const std::string& key : keys) out = times(out, degrees.of(key));
  return out;
}

std::string numbers(const Degrees& degrees, const std::vector<std::string>& keys) {
  std::vector<std::string> out;
  for (const std::string& key : keys) out.push_back(number(degrees.of(key)));
  return text::join(out, " * ");
}

int infer_dp(const Degrees& degrees, const std::vector<std::string>& keys, int world, const Asking& asking) {
  const int64_t others = product(degrees, keys);
  if (others > world || world % others != 0) {
    const auto largest = std::max_element(keys.begin(), keys.end(), [&](const auto& a, const auto& b) {
      return degrees.of(a) < degrees.of(b);
    });
    const std::string each = keys.size() > 1 ? "their product" : "it";
    refuse(asking, *largest,
           "world_size (" + number(world) + ") must be divisible by (" + text::join(keys, " * ") + ") (" +
               numbers(degrees, keys) + " = " + number(others) + ")",
           "one copy of the model takes " + number(others) + " ranks here: start a multiple of " +
               number(others) + " ranks, or lower " + text::join(keys, " or ") + " until " + each +
               " divides " + number(world));
  }
  return static_cast<int>(world / others);
}

void check_product(const Degrees& degrees, const std::vector<std::string>& keys, int world,
                   const Asking& asking) {
  const int64_t all = times(degrees.dp, product(degrees, keys));
  if (degrees.dp == 0 || all == world) return;
  refuse(asking, "dp_size",
         "dp_size * " + text::join(keys, " * ") + " must be world_size (" + number(world) + "), but " +
             number(degrees.dp) + " * " + numbers(degrees, keys) + " = " + number(all),
         "leave dp_size out: it is found from the number of ranks");
}

void check_sizes(const Sizes& sizes, const Needs& needs, const Asking& asking) {
  if (sizes.dp % sizes.dp_replicate != 0)
    refuse(asking, "dp_replicate_size",
           "dp_size must be a multiple of dp_replicate_size: dp_size=" + number(sizes.dp) +
               ", dp_replicate_size=" + number(sizes.dp_replicate));
  const int64_t non_pp = times(times(sizes.dp, sizes.cp), sizes.tp);
  const bool experts_fit = non_pp % sizes.ep == 0;
  if (needs.sizes_rule)
    if (const std::string complaint = needs.sizes_rule(sizes); !complaint.empty())
      refuse(asking, experts_fit ? (sizes.dp_replicate > 1 ? "dp_replicate_size" : "") : "ep_size", complaint,
             "change the number of ranks, the sizes under distributed, or distributed.strategy");
  if (!experts_fit)
    refuse(asking, "ep_size",
           "non_pp_size=" + number(non_pp) + " must be a multiple of ep_size=" + number(sizes.ep));
}

}  // namespace

const std::vector<std::string>& size_keys() {
  static const std::vector<std::string> keys = {"tp_size", "pp_size", "cp_size",
                                                "ep_size", "dp_size", "dp_replicate_size"};
  return keys;
}

int Degrees::of(std::string_view key) const {
  if (key == "tp_size") return tp;
  if (key == "pp_size") return pp;
  if (key == "cp_size") return cp;
  if (key == "ep_size") return ep;
  if (key == "dp_replicate_size") return dp_replicate;
  return key == "dp_size" ? dp : 1;
}

Degrees read_degrees(const Node& section) {
  Degrees out;
  out.tp = degree(section, "tp_size", 1);
  out.pp = degree(section, "pp_size", 1);
  out.cp = degree(section, "cp_size", 1);
  out.ep = degree(section, "ep_size", 1);
  out.dp = degree(section, "dp_size", 0);
  out.dp_replicate = degree(section, "dp_replicate_size", 1);
  return out;
}

Sizes resolve_sizes(const Degrees& degrees, const Needs& needs, int world, const Asking& asking) {
  check_what_is_refused(degrees, needs, asking);
  const std::vector<std::string> keys = factors(degrees, needs);
  // A mesh of data parallelism alone is the world, whatever dp_size says.
  const bool all_data = keys.empty();
  Sizes sizes;
  sizes.world = world;
  sizes.tp = degrees.tp;
  sizes.pp = degrees.pp;
  sizes.cp = degrees.cp;
  sizes.ep = degrees.ep;
  sizes.dp_replicate = degrees.dp_replicate;
  sizes.dp = all_data ? world : degrees.dp > 0 ? degrees.dp : infer_dp(degrees, keys, world, asking);
  check_sizes(sizes, needs, asking);
  if (!all_data) check_product(degrees, keys, world, asking);
  sizes.dp_shard = sizes.dp / sizes.dp_replicate;
  const int non_pp = sizes.dp * sizes.cp * sizes.tp;
  sizes.ep_shard = sizes.ep > 1 && sizes.ep < non_pp ? non_pp / sizes.ep : 1;
  return sizes;
}

}  // namespace heddle::engine

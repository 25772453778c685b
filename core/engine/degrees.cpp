// Inference of the data-parallel size, and every check of sizes.
#include "core/engine/degrees.h"

#include <cstdint>
#include <limits>

#include "core/parallel/features.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle::engine {
namespace {

using Rows = std::vector<const AxisInfo*>;

std::string number(int64_t value) {
  return std::to_string(value);
}

// Returns the place of a key, or of the section if the key is absent.
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

// Axes of the strategy's mesh must be among those that it needs; axes of a view need a strategy that declares
// `reductions`.
bool supports(const Needs& needs, const AxisInfo& axis) {
  if (!axis.view.empty()) return has(needs.may_use, kReductions);
  return axis.factor == 0 || has(needs.axes, axis.name);
}

void check_what_is_refused(const Degrees& degrees, const Needs& needs, const Asking& asking) {
  const Rows rows = degrees.table().in_order_of_reading();
  for (const AxisInfo* row : rows)
    if (row->kind == AxisKind::copies && degrees.of(row->name) > 1 && !has(needs.axes, row->name))
      refuse(asking, row->key,
             row->key + " is only supported with " +
                 (asking.replicating.empty() ? "a strategy that has it"
                                             : text::join(asking.replicating, " or ")),
             "leave " + row->key + " out, or choose another strategy");
  for (const Refusal& refusal : needs.refuses)
    if (const AxisInfo* row = degrees.table().find(refusal.axis); degrees.of(refusal.axis) > 1)
      refuse(asking, row == nullptr ? "" : row->key, refusal.text);
  for (const AxisInfo* row : rows)
    if (degrees.of(row->name) > 1 && !supports(needs, *row))
      refuse(asking, row->key, asking.strategy + " does not support " + row->parallelism);
}

// The axes that share the world with data parallelism, in the order of the messages.
Rows factors(const Degrees& degrees, const Needs& needs) {
  Rows out;
  for (const AxisInfo& row : degrees.table().axes())
    if (row.factor > 0 && has(needs.axes, row.name) &&
        (degrees.of(row.name) > 1 || !has(needs.axes_when_used, row.name)))
      out.push_back(&row);
  std::sort(out.begin(), out.end(),
            [](const AxisInfo* a, const AxisInfo* b) { return a->factor < b->factor; });
  return out;
}

// The product, or the largest number on overflow.
int64_t times(int64_t a, int64_t b) {
  int64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? std::numeric_limits<int64_t>::max() : out;
}

int64_t product(const Degrees& degrees, const Rows& rows) {
  int64_t out = 1;
  for (const AxisInfo* row : rows) out = times(out, degrees.of(row->name));
  return out;
}

std::string numbers(const Degrees& degrees, const Rows& rows) {
  std::vector<std::string> out;
  for (const AxisInfo* row : rows) out.push_back(number(degrees.of(row->name)));
  return text::join(out, " * ");
}

std::string keys(const Rows& rows, std::string_view separator) {
  std::vector<std::string> out;
  for (const AxisInfo* row : rows) out.push_back(row->key);
  return text::join(out, separator);
}

int infer_dp(const Degrees& degrees, const Rows& rows, int world, const Asking& asking) {
  const int64_t others = product(degrees, rows);
  if (others <= world && world % others == 0) return static_cast<int>(world / others);
  const auto largest = std::max_element(rows.begin(), rows.end(), [&](const auto* a, const auto* b) {
    return degrees.of(a->name) < degrees.of(b->name);
  });
  const std::string each = rows.size() > 1 ? "their product" : "it";
  refuse(asking, (*largest)->key,
         "world_size (" + number(world) + ") must be divisible by (" + keys(rows, " * ") + ") (" +
             numbers(degrees, rows) + " = " + number(others) + ")",
         "one replica of the model takes " + number(others) + " ranks: start a multiple of " +
             number(others) + " ranks (--nproc-per-node; heddle check: --world-size), or decrease " +
             keys(rows, " or ") + " until " + each + " divides " + number(world));
}

void check_product(const Degrees& degrees, const Rows& rows, int world, const Asking& asking) {
  const int dp = degrees.of(kSampleAxis);
  const int64_t all = times(dp, product(degrees, rows));
  if (dp == 0 || all == world) return;
  const std::string& key = degrees.table().find(kSampleAxis)->key;
  refuse(asking, key,
         key + " * " + keys(rows, " * ") + " must be world_size (" + number(world) + "), but " + number(dp) +
             " * " + numbers(degrees, rows) + " = " + number(all),
         "leave " + key + " out: it is found from the number of ranks");
}

// One view: its ranks, and how many of them its axes with a key take.
struct Folding {
  const ViewInfo* view;
  Rows rows;
  int64_t ranks = 1, taken = 1;
  bool fits() const { return ranks % taken == 0; }
};

std::vector<Folding> foldings(const Sizes& sizes, const AxisTable& table) {
  std::vector<Folding> out;
  for (const ViewInfo& view : table.views()) {
    Folding one{&view, {}};
    for (const std::string& axis : view.over) one.ranks = times(one.ranks, sizes.of(axis));
    for (const AxisInfo& row : table.axes()) {
      if (row.view != view.name || row.key.empty()) continue;
      one.rows.push_back(&row);
      one.taken = times(one.taken, sizes.of(row.name));
    }
    out.push_back(std::move(one));
  }
  return out;
}

[[noreturn]] void refuse_folding(const Folding& folding, const Degrees& degrees, const Asking& asking) {
  const std::string ranks =
      folding.view->ranks.empty() ? text::join(folding.view->over, " * ") : folding.view->ranks;
  std::vector<std::string> asked;
  for (const AxisInfo* row : folding.rows) asked.push_back(row->key + "=" + number(degrees.of(row->name)));
  refuse(asking, folding.rows.front()->key,
         ranks + "=" + number(folding.ranks) + " must be a multiple of " + text::join(asked, " * "));
}

void check_sizes(const Sizes& sizes, const Needs& needs, const Degrees& degrees, const Asking& asking) {
  std::string copies;  // the key of the axis of copies, if there are several
  for (const AxisInfo& row : degrees.table().axes()) {
    if (row.kind != AxisKind::copies) continue;
    if (sizes.of(row.name) > 1) copies = row.key;
    const std::string& whole = degrees.table().find(kSampleAxis)->key;
    if (sizes.dp % sizes.of(row.name) != 0)
      refuse(asking, row.key,
             whole + " must be a multiple of " + row.key + ": " + whole + "=" + number(sizes.dp) + ", " +
                 row.key + "=" + number(sizes.of(row.name)));
  }
  const auto all = foldings(sizes, degrees.table());
  const auto unfit = std::find_if(all.begin(), all.end(), [](const Folding& one) { return !one.fits(); });
  if (needs.sizes_rule)
    if (const std::string complaint = needs.sizes_rule(sizes); !complaint.empty())
      refuse(asking, unfit == all.end() ? copies : unfit->rows.front()->key, complaint,
             "change the number of ranks, the sizes under distributed, or distributed.strategy");
  if (unfit != all.end()) refuse_folding(*unfit, degrees, asking);
}

// All degrees but data parallelism, as given.
Sizes asked_for(const Degrees& degrees, int world) {
  Sizes sizes;
  sizes.world = world;
  for (const AxisInfo& row : degrees.table().axes()) {
    if (row.name == kSampleAxis || row.kind == AxisKind::joined) continue;
    if (row.size != nullptr)
      sizes.*row.size = degrees.of(row.name);
    else
      sizes.plugin_axes.push_back({row.name, degrees.of(row.name)});
  }
  return sizes;
}

void set(Sizes& sizes, const AxisInfo& row, int size) {
  if (row.size != nullptr) {
    sizes.*row.size = size;
    return;
  }
  for (Axis& one : sizes.plugin_axes)
    if (one.name == row.name) one.size = size;
}

}  // namespace

Degrees::Degrees(const Node& section, const AxisTable& table) : table_(table) {
  Errors errors;
  for (const AxisInfo* row : table_.in_order_of_reading())
    errors.attempt([&] {
      by_axis_.emplace_back(row->name, degree(section, row->key, row->name == kSampleAxis ? 0 : 1));
    });
  errors.raise();
}

int Degrees::of(std::string_view axis) const {
  for (const auto& [name, size] : by_axis_)
    if (name == axis) return size;
  return 1;
}

int Degrees::of_key(std::string_view size_key) const {
  const AxisInfo* row = table_.with_key(size_key);
  return row == nullptr ? 1 : of(row->name);
}

Sizes resolve_sizes(const Degrees& degrees, const Needs& needs, int world, const Asking& asking) {
  check_what_is_refused(degrees, needs, asking);
  const Rows rows = factors(degrees, needs);
  // If data parallelism is the only axis, its size is the world size, whatever dp_size says.
  const bool all_data = rows.empty();
  const int asked = degrees.of(kSampleAxis);
  Sizes sizes = asked_for(degrees, world);
  sizes.dp = all_data ? world : asked > 0 ? asked : infer_dp(degrees, rows, world, asking);
  check_sizes(sizes, needs, degrees, asking);
  if (!all_data) check_product(degrees, rows, world, asking);
  sizes.dp_shard = sizes.dp / sizes.dp_replicate;
  for (const Folding& one : foldings(sizes, degrees.table()))
    set(sizes, *degrees.table().find(one.view->rest),
        one.taken > 1 ? static_cast<int>(one.ranks / one.taken) : 1);
  return sizes;
}

}  // namespace heddle::engine

// A setup for scripts (one line of JSON) and for people (a block of lines).
#include "heddle/base/text.h"
#include "heddle/engine/engine.h"

namespace heddle::engine {
namespace {

Node checkpointing(ActivationCheckpointing mode) {
  switch (mode) {
    case ActivationCheckpointing::none:
      return Node::boolean(false);
    case ActivationCheckpointing::full:
      return Node::text("full");
    case ActivationCheckpointing::selective:
      return Node::text("selective");
  }
  return Node();
}

Node mesh(std::span<const Axis> axes) {
  std::vector<Node> names, shape;
  for (const Axis& axis : axes) {
    names.push_back(Node::text(axis.name));
    shape.push_back(Node::integer(axis.size));
  }
  return Node::map({{"axes", Node::list(std::move(names))}, {"shape", Node::list(std::move(shape))}});
}

Node views(const Setup& setup) {
  std::vector<Node::Entry> entries;
  for (const View& view : setup.views) entries.emplace_back(view.name, mesh(view.axes));
  return Node::map(std::move(entries));
}

Node sizes(const Setup& setup) {
  std::vector<Node::Entry> entries;
  for (const AxisInfo& axis : setup.axis_table.axes())
    if (axis.kind != AxisKind::joined)
      entries.emplace_back(axis.name, Node::integer(setup.sizes.of(axis.name)));
  return Node::map(std::move(entries));
}

std::string words(std::span<const Axis> axes) {
  std::vector<std::string> out;
  for (const Axis& axis : axes) out.push_back(axis.name + " " + std::to_string(axis.size));
  return text::join(out);
}

Node lines(const std::vector<std::string>& texts) {
  std::vector<Node> items;
  for (const std::string& line : texts) items.push_back(Node::text(line));
  return Node::list(std::move(items));
}

// "key  value" lines of a map, indented.
std::string fields(const Node& map) {
  std::string out;
  for (const auto& [key, value] : map.entries()) out += "  " + key + ": " + config::to_json(value) + "\n";
  return out;
}

}  // namespace

std::string to_json(const Setup& setup) {
  std::vector<Node::Entry> entries = {{"strategy", Node::text(setup.strategy)},
                                      {"world_size", Node::integer(setup.sizes.world)},
                                      {"mesh", mesh(setup.axes)},
                                      {"sizes", sizes(setup)},
                                      {"strategy_config", setup.strategy_config}};
  if (!setup.views.empty()) entries.emplace_back("views", views(setup));
  for (const auto& [name, section] : setup.sections) entries.emplace_back(name, section);
  entries.emplace_back("activation_checkpointing", checkpointing(setup.activation_checkpointing));
  entries.emplace_back("warnings", lines(setup.warnings));
  entries.emplace_back("not_built", lines(setup.not_built));
  return config::to_json(Node::map(std::move(entries)));
}

std::string to_text(const Setup& setup) {
  std::string views;
  for (const View& view : setup.views) views += "\nview " + view.name + ": " + words(view.axes);
  std::string out =
      "strategy: " + setup.strategy + "\nworld size: " + std::to_string(setup.sizes.world) +
      "\nmesh: " + words(setup.axes) + views + "\nsizes: " + config::to_json(sizes(setup)) +
      "\nactivation checkpointing: " + config::to_json(checkpointing(setup.activation_checkpointing)) + "\n" +
      setup.strategy + ":\n" + fields(setup.strategy_config.without("activation_checkpointing"));
  for (const auto& [name, section] : setup.sections)
    if (!section.is_null()) out += name + ":\n" + fields(section);
  for (const std::string& later : setup.not_built) out += "not built yet: " + later + "\n";
  return out;
}

}  // namespace heddle::engine

// The door kit: what `heddle plugins check` runs on a plugin's file, for tests of a plugin's own too.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/plugin/papers.h"
#include "heddle/plugin/registry.h"
#include "heddle/schedule/check.h"
#include "heddle/schedule/lower.h"

namespace heddle::testing {

// One rule of the door, and how the plugin kept it.
struct Check {
  std::string rule;  // "the stamp fits this engine"
  bool passed = false;
  std::string detail;  // what was seen, or what is wrong
};

struct Report {
  std::vector<Check> checks;

  bool passed() const {
    for (const Check& check : checks)
      if (!check.passed) return false;
    return !checks.empty();
  }
  // One line a check: "ok    the stamp fits this engine: sdk=3 ..." or "FAIL  ...".
  std::string text() const {
    std::string out;
    for (const Check& check : checks)
      out += (check.passed ? "ok    " : "FAIL  ") + check.rule +
             (check.detail.empty() ? "" : ": " + check.detail) + "\n";
    return out;
  }
};

namespace detail {

class DoorKit {
 public:
  explicit DoorKit(std::filesystem::path file) : file_(std::move(file)) {}

  Report run() {
    const bool read = rule("the papers read", [&] {
      papers_ = plugin::read_papers(file_);
      return papers_.name + " " + papers_.version;
    });
    if (!read) return report_;
    const bool fits = rule("the stamp fits this engine", [&] {
      plugin::check_abi(papers_, file_);
      return papers_.abi;
    });
    if (!fits || !rule("the whole offer is admitted", [&] { return load(registry_); })) return report_;
    rule("loaded twice in one registry is refused", [&] { return refuses_twice(); });
    rule("another registry in this process takes it too", [&] {
      PluginRegistry other({});
      return load(other);
    });
    for (const plugin::PaperOffer& offer : papers_.offers) look_at(offer);
    return report_;
  }

 private:
  // Runs one check; it returns what it saw, and throws Error with what is wrong.
  bool rule(const std::string& name, const std::function<std::string()>& check) {
    try {
      report_.checks.push_back({name, true, check()});
    } catch (const Error& error) {
      report_.checks.push_back(
          {name, false, error.message() + (error.hint().empty() ? "" : " (" + error.hint() + ")")});
    }
    return report_.checks.back().passed;
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorCode::plugin_failed, file_.string(), why);
  }

  std::string load(PluginRegistry& registry) const {
    std::string out;
    for (const std::string& offer : registry.load(file_.string()).offers)
      out += (out.empty() ? "" : ", ") + offer;
    return out;
  }

  std::string refuses_twice() {
    try {
      registry_.load(file_.string());
    } catch (const Error& error) {
      if (error.code() == ErrorCode::plugin_conflict) return "";
      throw;
    }
    fail("the second load went through");
  }

  void look_at(const plugin::PaperOffer& offer) {
    if (offer.kind == "strategy") check_strategy(*registry_.strategy(offer.name));
    if (offer.kind == "parallelizer") check_schema("parallelizer", *registry_.parallelizer(offer.name));
    if (offer.kind == "section") check_schema("section", *registry_.section(offer.name));
    if (offer.kind == "plan") check_plan(*registry_.plan(offer.name));
    if (offer.kind == "schedule") check_schedule(*registry_.schedule(offer.name));
    if (offer.kind == "device") check_device(*registry_.device(offer.name));
  }

  void check_plan(const OfferedPlan& offered) {
    rule("the plan '" + offered.name + "' gives styles to modules", [&] {
      if (offered.fields.empty()) fail("it names no module");
      return std::to_string(offered.fields.size()) + " patterns";
    });
  }

  void check_schema(const std::string& kind, const OfferedSchema& offered) {
    const std::string thing = "the " + kind + " '" + offered.name + "'";
    rule(thing + " prints its table", [&] {
      for (const FieldInfo& field : offered.fields)
        if (field.type.empty() || field.help.empty() || field.default_value.empty())
          fail("the field '" + field.key + "' lacks a type, a default or a help");
      return std::to_string(offered.fields.size()) + " fields";
    });
    rule(thing + " refuses an unknown key", [&] {
      try {
        (void)offered.resolve(Node::map({{"no_such_key_at_all", Node::integer(1)}}));
      } catch (const Error& error) {
        if (error.code() == ErrorCode::config) return std::string();
        throw;
      }
      fail("the section {no_such_key_at_all: 1} was taken");
    });
  }

  void check_strategy(const OfferedStrategy& offered) {
    check_schema("strategy", offered);
    const std::string thing = "the strategy '" + offered.name + "'";
    rule(thing + " says what it needs", [&] {
      if (offered.needs.axes.empty()) fail("its needs name no axis of the mesh");
      std::string axes;
      for (const std::string& axis : offered.needs.axes) axes += (axes.empty() ? "" : ", ") + axis;
      return "mesh " + axes;
    });
    if (!offered.make) {
      report_.checks.push_back({thing + " has words only", true, offered.not_built});
      return;
    }
    rule(thing + " is made twice from its defaults", [&] {
      const Node defaults = offered.resolve(Node::map({})).values;
      const auto one = offered.make(defaults), two = offered.make(defaults);
      if (one->needs().axes != two->needs().axes || one->needs().axes != offered.needs.axes)
        fail("its needs change from one to the next");
      return std::string();
    });
  }

  // Tables of many sizes, before and after lowering. A schedule may refuse sizes (with an Error of its own),
  // but not all of them.
  void check_schedule(const OfferedSchedule& offered) {
    rule("the schedule '" + offered.name + "' plans tables that run", [&] {
      const auto made = offered.make();
      const StagesPerRank takes = made->stages_per_rank();
      int planned = 0, refused = 0;
      for (int ranks = 1; ranks <= 5; ++ranks)
        for (int each = takes.least; each <= std::min(takes.most, takes.least + 2); ++each)
          for (const int microbatches : {1, 2, 3, 4, 6, 8, 15})
            ++(plans(*made, ranks, ranks * each, microbatches) ? planned : refused);
      if (planned == 0) fail("it refuses every size");
      return std::to_string(planned) + " tables" +
             (refused == 0 ? "" : ", and refuses " + std::to_string(refused) + " sizes");
    });
  }

  // False: refused. A table that is wrong throws Error{plugin_failed}.
  bool plans(const IPipelineSchedule& made, int ranks, int stages, int microbatches) const {
    ScheduleTable table;
    try {
      table = made.plan(ranks, stages, microbatches);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::plugin_failed) throw;
      return false;
    }
    const auto placement = schedule::placement(made, ranks, stages, file_.string());
    schedule::check(schedule::lower(table, placement), placement, microbatches, file_.string(),
                    schedule::Work::training, ErrorCode::plugin_failed);
    return true;
  }

  // Asked twice, as the engine does; a machine without the device is no fault of the plugin.
  void check_device(const OfferedDevice& offered) {
    rule("the device '" + offered.name + "' says whether it is there", [&] {
      const std::string first = offered.make()->absent(), again = offered.make()->absent();
      if (first != again) fail("it says '" + first + "', then '" + again + "'");
      return first.empty() ? std::string("it is") : "it is not: " + first;
    });
  }

  std::filesystem::path file_;
  plugin::Papers papers_;
  PluginRegistry registry_{{}};
  Report report_;
};

}  // namespace detail

// Checks the file in this process. A plugin that ends the process while it is opened (a static initialiser
// that throws) ends it here too; `heddle plugins check` runs this in a process of its own.
inline Report check_plugin(const std::filesystem::path& file) {
  return detail::DoorKit(file).run();
}

}  // namespace heddle::testing

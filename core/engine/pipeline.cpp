// From the pipeline's fields to its schedule.
#include "core/engine/pipeline.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>

#include "core/engine/sections.h"
#include "core/parallel/agreed_schedule.h"
#include "core/schedule/microbatches.h"
#include "heddle/base/text.h"
#include "heddle/parallel/build.h"
#include "heddle/schedule/schedule.h"
#include "heddle/schedule/simulate.h"

namespace heddle::engine {
namespace {

// Returns the block as it was given, or null.
const Node* given_block(const Setup& setup, const std::string& name) {
  const Node* section = setup.configuration.find("distributed");
  const Node* block = section != nullptr ? section->find(name) : nullptr;
  return block == nullptr || block->is_null() ? nullptr : block;
}

std::unique_ptr<IPipelineSchedule> make_schedule(const PipelineConfig& words, PluginRegistry& plugins) {
  if (!words.table.empty()) return schedule::make_from_table(schedule::read_table(words.table, words.where));
  if (const OfferedSchedule* offered = plugins.schedule(words.schedule)) return offered->make();
  const std::vector<std::string> known = plugins.names("schedule");
  const std::string near = text::nearest(words.schedule, known);
  throw Error(ErrorCode::plugin_missing, words.where,
              "Unknown schedule '" + text::excerpt(words.schedule) + "'. The available schedules are " +
                  python_list(known),
              near.empty() ? "name one of them, or give a table" : "did you mean '" + near + "'?");
}

}  // namespace

void add_pipeline(Plan& plan, const Setup& setup, PluginRegistry& plugins) {
  for (const auto& [name, values] : setup.sections) {
    const OfferedSection* offered = plugins.section(name);
    const Node* given = given_block(setup, name);
    if (offered == nullptr || !offered->pipeline || (values.is_null() && given == nullptr)) continue;
    PipelineConfig config = offered->pipeline(values.is_null() ? offered->resolve(*given).values : values);
    config.where = given != nullptr ? given->where() : "distributed." + name;
    std::unique_ptr<IPipelineSchedule> schedule = make_schedule(config, plugins);
    if (values.is_null()) continue;  // with a single stage the block is checked, and has no effect
    plan.pipeline = std::move(config);
    plan.schedule = schedule::with_times(std::move(schedule), plan.pipeline);
  }
}

std::string agree_on_table(Plan& plan, const Setup& setup, const Units& units, Rendezvous& rendezvous,
                           int64_t batch_rows) {
  if (plan.schedule == nullptr || !parallel::is_searched(*plan.schedule)) return "";
  plan.schedule = std::make_shared<parallel::AgreedSchedule>(plan.schedule, rendezvous);
  if (batch_rows == 0) return "";
  const int ranks = setup.sizes.of(kPipelineAxis);
  const std::vector<int> rank_of_stage = parallel::map_stages(units, plan, ranks).rank_of_stage;
  const int microbatches = schedule::count_microbatches(batch_rows, plan.pipeline);
  const ScheduleTable table =
      plan.schedule->plan(ranks, static_cast<int>(rank_of_stage.size()), microbatches);
  const std::string cells = schedule::to_csv(table, rank_of_stage);
  return "table found for the pipeline: " + std::to_string(std::hash<std::string>{}(cells)) + "\n";
}

std::string table_lines(const Plan& plan) {
  if (plan.schedule == nullptr || plan.pipeline.table.empty()) return "";
  std::ifstream file(plan.pipeline.table, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  return "table of the pipeline's schedule: " + std::to_string(std::hash<std::string>{}(bytes)) + "\n";
}

}  // namespace heddle::engine

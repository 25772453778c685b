// Events are written one per line; those of a schedule come from its simulation.
#include "lib/drawing/chrome_trace.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/base/regular_file.h"
#include "heddle/base/text.h"

namespace heddle::schedule {
namespace {

using std::to_string;

// Whole nanoseconds, so that spans which touch do so in the file.
int64_t nanos(double micros) {
  return std::llround(1e3 * micros);
}

std::string micros_text(int64_t nanos) {
  char text[40];
  std::snprintf(text, sizeof text, "%.3f", 1e-3 * static_cast<double>(nanos));
  return text;
}

std::string micros(double time) {
  return micros_text(nanos(time));
}

std::string head(std::string_view phase, int process, int thread) {
  return "{\"ph\":\"" + std::string(phase) + "\",\"pid\":" + to_string(process) +
         ",\"tid\":" + to_string(thread);
}

std::string named(std::string_view name, std::string_view category) {
  return ",\"name\":" + text::quoted(name) + ",\"cat\":" + text::quoted(category);
}

}  // namespace

void ChromeTrace::close(std::string_view arguments) {
  if (!arguments.empty()) text_ += ",\"args\":" + std::string(arguments);
  text_ += "},\n";
}

void ChromeTrace::process(int id, std::string_view name, int order, std::string_view about) {
  const auto meta = [&](const char* what, const std::string& value) {
    text_ += head("M", id, 0) + ",\"name\":\"" + what + "\"";
    close(value);
  };
  meta("process_name", "{\"name\":" + text::quoted(name) + "}");
  meta("process_sort_index", "{\"sort_index\":" + to_string(order) + "}");
  if (!about.empty()) meta("process_labels", "{\"labels\":" + text::quoted(about) + "}");
}

void ChromeTrace::thread(int process, int id, std::string_view name) {
  text_ += head("M", process, id) + ",\"name\":\"thread_name\"";
  close("{\"name\":" + text::quoted(name) + "}");
}

void ChromeTrace::span(int process, int thread, std::string_view name, std::string_view category,
                       double begin, double end, std::string_view arguments) {
  text_ += head("X", process, thread) + named(name, category) + ",\"ts\":" + micros(begin) +
           ",\"dur\":" + micros_text(std::max<int64_t>(0, nanos(end) - nanos(begin)));
  close(arguments);
}

void ChromeTrace::flight(int process, int64_t id, std::string_view name, std::string_view category,
                         double begin, double end, std::string_view arguments) {
  const std::string rest = named(name, category) + ",\"id2\":{\"local\":\"" + to_string(id) + "\"},\"ts\":";
  text_ += head("b", process, 0) + rest + micros(begin);
  close(arguments);
  text_ += head("e", process, 0) + rest + micros(std::max(begin, end));
  close({});
}

void ChromeTrace::arrow(char phase, std::string_view id, const End& end) {
  text_ += head(std::string(1, phase), end.process, end.thread) + named("transfer", "transfer") +
           ",\"id\":" + text::quoted(id) + ",\"ts\":" + micros(end.time);
  if (phase == 'f') text_ += ",\"bp\":\"e\"";
  close({});
}

namespace {

constexpr std::string_view kFirst = "{\"displayTimeUnit\":\"ms\",", kAbout = "\"otherData\":",
                           kOwn = "{\"schedule\":";  // the first key of what heddle says about its traces

}  // namespace

bool is_chrome_file(const std::filesystem::path& file) {
  const std::string own = std::string(kFirst) + std::string(kAbout) + std::string(kOwn);
  return read_beginning(file, own.size()) == own;
}

std::string chrome_file(std::string_view events, std::string_view about) {
  if (events.ends_with(",\n")) events.remove_suffix(2);
  std::string file(kFirst);
  if (!about.empty()) file += std::string(kAbout) + std::string(about) + ",";
  return file + "\"traceEvents\":[\n" + std::string(events) + "\n]}\n";
}

namespace {

// One simulated schedule on its way into a trace.
class Simulated {
 public:
  Simulated(ChromeTrace& trace, const ScheduleTable& table, std::span<const int> rank_of_stage,
            std::span<const Costs> costs, const SimulationPlace& place)
      : trace_(trace),
        table_(table),
        rank_of_(rank_of_stage),
        run_(simulate(table, rank_of_stage, costs)),
        place_(place),
        first_(place.first_process) {}

  Simulation write() {
    for (int rank = 0; rank < static_cast<int>(table_.size()); ++rank) row(rank);
    return std::move(run_);
  }

 private:
  void row(int rank) {
    trace_.process(
        first_ + rank, place_.name + "rank " + to_string(rank), first_ + rank,
        idle_text(run_.idle[rank]) + ", peak " + peak_text(run_.peak[rank], rank_of_.size(), table_.size()));
    trace_.thread(first_ + rank, kActionLane, "actions");
    double free = 0;
    for (size_t step = 0; step < table_[rank].size(); ++step) {
      const Action& action = table_[rank][step];
      if (!computes(action.kind)) continue;
      const auto [start, end] = run_.times[rank][step];
      const std::string name = name_of(action);
      if (start > free) trace_.span(first_ + rank, kActionLane, "wait " + name, "wait", at(free), at(start));
      trace_.span(
          first_ + rank, kActionLane, name, "compute", at(start), at(end),
          "{\"stage\":" + to_string(action.stage) + ",\"microbatch\":" + to_string(action.microbatch) + "}");
      arrows(rank, action, start, end);
      free = end;
    }
    if (run_.length > free)
      trace_.span(first_ + rank, kActionLane, "done", "wait", at(free), at(run_.length));
  }

  // Each computation except W sends its result to the next or the previous stage, and receives its input.
  void arrows(int rank, const Action& action, double start, double end) {
    if (action.kind == Action::backward_weight) return;
    const bool forward = action.kind == Action::forward;
    const int step = forward ? 1 : -1;
    const ChromeTrace::End out{first_ + rank, kActionLane, at(end)},
        in{first_ + rank, kActionLane, at(start)};
    if (elsewhere(action.stage + step, rank)) trace_.arrow_from(id(action.stage, forward, action), out);
    if (elsewhere(action.stage - step, rank)) trace_.arrow_to(id(action.stage - step, forward, action), in);
  }

  double at(double time) const { return place_.begin + time * place_.unit; }

  bool elsewhere(int stage, int rank) const {
    return stage >= 0 && stage < static_cast<int>(rank_of_.size()) && rank_of_[stage] != rank;
  }

  // Identifies a transfer by the stage that sends it.
  std::string id(int stage, bool forward, const Action& action) const {
    return place_.name + to_string(place_.begin) + (forward ? "F" : "B") + to_string(stage) + "." +
           to_string(action.microbatch);
  }

  ChromeTrace& trace_;
  const ScheduleTable& table_;
  std::span<const int> rank_of_;
  Simulation run_;
  const SimulationPlace& place_;
  const int first_;
};

}  // namespace

Simulation add_simulation(ChromeTrace& trace, const ScheduleTable& table, std::span<const int> rank_of_stage,
                          std::span<const Costs> costs, const SimulationPlace& place) {
  return Simulated(trace, table, rank_of_stage, costs, place).write();
}

std::string to_chrome_trace(const Drawing& drawing, std::span<const Costs> costs) {
  ChromeTrace trace;
  const Simulation run = add_simulation(trace, drawing.table, drawing.rank_of_stage, costs, {});
  return chrome_file(trace.text(), "{\"schedule\":" + text::quoted(drawing.name) +
                                       ",\"sizes\":" + text::quoted(sizes_text(drawing)) +
                                       ",\"length_ms\":" + micros(run.length) + "}");
}

}  // namespace heddle::schedule

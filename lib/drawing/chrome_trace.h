// Files in Chrome's trace format, which Perfetto (ui.perfetto.dev) opens: spans of time in rows of threads
// and processes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "heddle/base/export.h"
#include "heddle/schedule/simulate.h"
#include "lib/drawing/drawing.h"

namespace heddle::schedule {

// Collects events as text. Times are in microseconds from any beginning that all events share. Texts of
// several ranks are one after the other, in any order.
class HEDDLE_API ChromeTrace {
 public:
  // Processes are sorted by `order`. `about`: one line under its name; may be empty.
  void process(int id, std::string_view name, int order, std::string_view about = {});
  void thread(int process, int id, std::string_view name);
  // Spans of one thread are disjoint or nested. `arguments`: a JSON object, or empty.
  void span(int process, int thread, std::string_view name, std::string_view category, double begin,
            double end, std::string_view arguments = {});
  // A collective or transfer in flight. `id`: unique in a process.
  void flight(int process, int64_t id, std::string_view name, std::string_view category, double begin,
              double end, std::string_view arguments = {});
  // An arrow between two spans, each given by a time inside it. `id`: unique in a file.
  struct End {
    int process = 0, thread = 0;
    double time = 0;
  };
  void arrow_from(std::string_view id, const End& end) { arrow('s', id, end); }
  void arrow_to(std::string_view id, const End& end) { arrow('f', id, end); }

  const std::string& text() const { return text_; }

 private:
  void arrow(char phase, std::string_view id, const End& end);
  void close(std::string_view arguments);

  std::string text_;
};

// The whole file. `about`: a JSON object for its otherData, or empty.
HEDDLE_API std::string chrome_file(std::string_view events, std::string_view about = {});
// Whether a file begins as heddle's traces do.
HEDDLE_API bool is_chrome_file(const std::filesystem::path& file);

// The threads of a rank's process.
inline constexpr int kActionLane = 0;

// The position of a simulation in a trace. One unit of the simulator's time is `unit` microseconds.
struct SimulationPlace {
  std::string name;       // goes before "rank 0"
  int first_process = 0;  // of rank 0; the others follow
  double begin = 0, unit = 1000;
};

// Adds a schedule as the simulator runs it: a process a rank, with spans for its computations and its waits,
// and arrows for the transfers. `costs`: of each stage. Returns the simulation.
HEDDLE_API Simulation add_simulation(ChromeTrace& trace, const ScheduleTable& table,
                                     std::span<const int> rank_of_stage, std::span<const Costs> costs,
                                     const SimulationPlace& place);

// A drawing's table as a file, with the given costs; a unit of time is a millisecond.
HEDDLE_API std::string to_chrome_trace(const Drawing& drawing, std::span<const Costs> costs);

}  // namespace heddle::schedule

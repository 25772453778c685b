// Metrics plugins that receive the records of a run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "heddle/plugin/metrics.h"
#include "lib/report/metrics.h"

namespace heddle {

// Returns the numbers of a line under their names in the file, in the same order, including those that are
// not finite.
MetricsRecord to_record(const TrainingRecord& record);
MetricsRecord to_record(const ValidationRecord& record, const std::string& set);

// A section of a recipe that a metrics plugin offers.
struct SinkSection {
  std::string name;
  const OfferedMetrics* offered = nullptr;
  Node values;  // all fields
};

class Sinks {
 public:
  using Warn = std::function<void(const std::string&)>;
  // Starts the plugins of the sections and throws their errors. An error that a plugin throws later is passed
  // to `warn`, its sink is closed, and the run continues.
  Sinks(const std::vector<SinkSection>& sections, const MetricsRun& run, Warn warn);
  void record(const MetricsRecord& record);
  void finish();

 private:
  struct Sink {
    std::string name;
    std::unique_ptr<IMetrics> metrics;  // null: failed
  };
  void each(const std::function<void(IMetrics&)>& call);

  Warn warn_;
  std::vector<Sink> sinks_;
};

}  // namespace heddle

// The plugins that take the records of a run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "heddle/plugin/metrics.h"
#include "lib/report/metrics.h"

namespace heddle {

// The numbers of a line under their names in the file, in its order; numbers that are not finite too.
MetricsRecord to_record(const TrainingRecord& record);
MetricsRecord to_record(const ValidationRecord& record, const std::string& set);

// A section of a recipe that a plugin of metrics offers.
struct SinkSection {
  std::string name;
  const OfferedMetrics* offered = nullptr;
  Node values;  // every field
};

class Sinks {
 public:
  using Warn = std::function<void(const std::string&)>;
  // Starts those of the sections. Throws what a plugin throws. `warn` gets what they throw later, once each:
  // the sink is closed then, and the run goes on.
  Sinks(const std::vector<SinkSection>& sections, const MetricsRun& run, Warn warn);
  void record(const MetricsRecord& record);
  void finish();

 private:
  struct Sink {
    std::string name;
    std::unique_ptr<IMetrics> metrics;  // null: it has failed
  };
  void each(const std::function<void(IMetrics&)>& call);

  Warn warn_;
  std::vector<Sink> sinks_;
};

}  // namespace heddle

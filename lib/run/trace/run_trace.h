// Trace of some steps of all ranks of a run, in one file.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heddle/parallel/stages.h"
#include "heddle/train/step.h"
#include "lib/run/trace/rank_events.h"
#include "lib/run/trace/request.h"
#include "lib/transport/traced.h"

namespace heddle {

// Profiler of LibTorch's operators on this thread and the autograd threads. At most one per process.
class OperatorProfile {
 public:
  void start();
  // Returns the operators since start(), sorted by start time.
  std::vector<RanOperator> stop();

 private:
  std::chrono::nanoseconds system_ahead_{};  // offset of the system clock to the steady clock
};

// Disabled if the request has no file: then a step costs one test, and groups are those of the rendezvous.
class RunTrace {
 public:
  // schedule: for the summary.
  RunTrace(TraceRequest request, Rendezvous& rendezvous, int64_t first_step, std::string schedule);

  // Returns the rendezvous to use for traced groups, valid as long as this object.
  Rendezvous& rendezvous();

  // Called around each step on every rank. After the last traced step, a collective of all ranks: rank 0
  // writes the file and prints its path and the idle share of the pipeline. A file that cannot be written is
  // a warning, so that the run continues.
  void begin(Step& step, int64_t index);
  void end(Step& step, int64_t index, const Stages& stages, const DeviceMesh& mesh);

  // Called at the end of the run on every rank: writes the recorded steps if the run ended before the last
  // traced one.
  void finish(const Stages& stages, const DeviceMesh& mesh);

 private:
  bool is_traced(int64_t step) const;
  void write(const Stages& stages, const DeviceMesh& mesh);

  const TraceRequest request_;
  Rendezvous& host_;
  const std::string schedule_;
  CallLog calls_;
  std::unique_ptr<Rendezvous> traced_;
  RankRecord record_;
  OperatorProfile profile_;
  bool is_written_ = false;
};

}  // namespace heddle

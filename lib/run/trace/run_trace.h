// The trace of a run: some steps of all ranks in one file.
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

// One at a time in a process. It sees this thread and the threads of autograd.
class OperatorProfile {
 public:
  void start();
  // What ran since start(), in the order of its beginnings.
  std::vector<RanOperator> stop();

 private:
  std::chrono::nanoseconds system_ahead_{};  // of the steady clock
};

// Off, where the request has no file: then a step costs one test, and groups are those of the rendezvous.
class RunTrace {
 public:
  // schedule: for the summary.
  RunTrace(TraceRequest request, Rendezvous& rendezvous, int64_t first_step, std::string schedule);

  // The rendezvous for what is to be traced; it lives as long as this.
  Rendezvous& rendezvous();

  // Around a step, on every rank. The end of the last traced step writes the file: a collective of all ranks;
  // rank 0 writes, and prints where to and how idle the pipeline was. A file that cannot be written is a
  // warning, as the run is worth more.
  void begin(Step& step, int64_t at);
  void end(Step& step, int64_t at, const Stages& stages, const DeviceMesh& mesh);

  // The end of the run, on every rank: writes what there is, where the run ended before the last traced step.
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

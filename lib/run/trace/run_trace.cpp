// Gathers events and actions of all ranks on rank 0, which simulates the pipeline with the measured times.
#include "lib/run/trace/run_trace.h"

#include <unistd.h>

#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <set>
#include <utility>

#include "heddle/base/text.h"
#include "lib/run/trace/trace_file.h"
#include "lib/transport/launch/process.h"

namespace heddle {
namespace {

// default number of steps, after the first one, which allocates memory and learns shapes
constexpr int64_t kUnasked = 2;

TraceRequest with_steps(TraceRequest request, int64_t first_step) {
  if (request.steps > 0) return request;
  request.first_step = first_step + 1;
  request.steps = kUnasked;
  return request;
}

using torch::profiler::impl::ActivityType;

std::chrono::nanoseconds now_of_system() {
  return std::chrono::system_clock::now().time_since_epoch();
}

}  // namespace

RunTrace::RunTrace(TraceRequest request, Rendezvous& rendezvous, int64_t first_step, std::string schedule)
    : request_(with_steps(std::move(request), first_step)),
      host_(rendezvous),
      schedule_(std::move(schedule)) {
  if (!request_.file.empty()) traced_ = mesh::traced(rendezvous, calls_);
}

Rendezvous& RunTrace::rendezvous() {
  return traced_ ? *traced_ : host_;
}

bool RunTrace::is_traced(int64_t step) const {
  return traced_ && step >= request_.first_step && step < request_.first_step + request_.steps;
}

void RunTrace::begin(Step& step, int64_t index) {
  if (!is_traced(index)) return;
  if (request_.operators) profile_.start();
  calls_.open(true);
  TracedStep& traced = record_.steps.emplace_back();
  traced.step = index;
  step.record(&traced.recording);
  traced.begin = std::chrono::steady_clock::now();
}

void RunTrace::end(Step& step, int64_t index, const Stages& stages, const DeviceMesh& mesh) {
  if (!is_traced(index)) return;
  record_.steps.back().end = std::chrono::steady_clock::now();
  step.record(nullptr);
  calls_.open(false);
  if (request_.operators) {
    std::vector<RanOperator> ran = profile_.stop();
    std::move(ran.begin(), ran.end(), std::back_inserter(record_.operators));
  }
  if (index + 1 == request_.first_step + request_.steps) write(stages, mesh);
}

void RunTrace::finish(const Stages& stages, const DeviceMesh& mesh) {
  if (traced_ && !is_written_) write(stages, mesh);
}

void RunTrace::write(const Stages& stages, const DeviceMesh& mesh) {
  is_written_ = true;
  record_.calls = calls_.take();
  const TraceTime time(common_origin(host_, record_.steps));
  const std::vector<int>& rank_of_stage = stages.pipeline().rank_of_stage;
  std::vector<std::string> parts;  // on rank 0
  const std::string own = pack_rank({events_of_rank(record_, mesh, rank_of_stage, time),
                                     mesh.ranks(kPipelineAxis), actions_of(record_.steps, time)});
  host_.meet("trace", own, [&](std::span<const std::string> texts) {
    parts.assign(texts.begin(), texts.end());
    return std::vector<std::string>{""};
  });
  record_ = {};
  if (host_.rank() != 0) return;
  if (parts.empty()) return;
  const TraceFile file = make_trace_file(parts, rank_of_stage, schedule_);
  std::ofstream out(request_.file, std::ios::binary | std::ios::trunc);
  if (out << file.text << std::flush)
    std::cout << "  trace   " << request_.file.string() << ": " << file.summary << std::endl;
  else
    std::cerr << "warning: --trace: " << request_.file.string() << " cannot be written" << std::endl;
}

void OperatorProfile::start() {
  // Without a GPU, the profiler library would print an irrelevant error on each rank.
  setenv("KINETO_LOG_LEVEL", "99", /*overwrite=*/0);
  using torch::profiler::impl::ProfilerConfig;
  using torch::profiler::impl::ProfilerState;
  const ProfilerConfig config(ProfilerState::KINETO);
  const std::set<ActivityType> activities = {ActivityType::CPU};
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities);
  system_ahead_ = now_of_system() - std::chrono::steady_clock::now().time_since_epoch();
}

std::vector<RanOperator> OperatorProfile::stop() {
  const auto result = torch::autograd::profiler::disableProfiler();
  std::vector<RanOperator> operators;
  for (const auto& event : result->events()) {
    const auto begin =
        RanAction::Time(std::chrono::nanoseconds(static_cast<int64_t>(event.startNs())) - system_ahead_);
    operators.push_back({event.name(), event.startThreadId(), begin,
                         begin + std::chrono::nanoseconds(static_cast<int64_t>(event.durationNs()))});
  }
  std::stable_sort(operators.begin(), operators.end(),
                   [](const RanOperator& one, const RanOperator& two) { return one.begin < two.begin; });
  return operators;
}

}  // namespace heddle

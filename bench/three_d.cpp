// A job in three dimensions on eight thread ranks: the time of a step against what its parts would need, and
// a Chrome trace of one step.
//   bench_three_d [steps] [trace.json] [YAML of the distributed section] [ranks]
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "heddle/engine/engine.h"
#include "heddle/schedule/simulate.h"
#include "heddle/transport/threads.h"
#include "tests/llama_model.h"

namespace {

using namespace heddle;

constexpr const char* kThreeD =
    "{strategy: fsdp2, tp_size: 2, pp_size: 2, pipeline: {pp_schedule: 1f1b, pp_microbatch_size: 1},"
    " mp_policy: {param_dtype: float32, reduce_dtype: float32}}";
constexpr int64_t kRows = 8, kSequence = 128;  // of one data-parallel rank's batch

struct RankTimes {
  double step = 0, processor = 0;  // seconds: the fastest step by the clock; a step of this rank on a core
  Recording recording;             // of the last step
};

struct Job {
  int ranks = 8, steps = 5;
  std::string trace = "trace.json", section = kThreeD;
  std::vector<RankTimes> times;
  std::vector<double> idle;  // the simulator's, [rank of pp]
  std::mutex mutex;
};

ModelConfig model_of() {
  ModelConfig model;
  model.vocab_size = 2048;
  model.hidden_size = 256;
  model.intermediate_size = 704;
  model.num_hidden_layers = 8;
  model.num_attention_heads = 8;
  model.num_key_value_heads = 4;
  model.head_dim = 32;
  return model;
}

// Returns a batch that is equal on all ranks of one data-parallel position.
Batch batch_of(int64_t vocabulary, int place) {
  const at::Tensor words =
      at::arange(kRows * (kSequence + 1), at::kLong).add(place).mul(7919).remainder(vocabulary);
  const at::Tensor rows = words.view({kRows, kSequence + 1});
  Batch batch;
  batch.tokens = rows.narrow(1, 0, kSequence).contiguous();
  batch.labels = rows.narrow(1, 1, kSequence).contiguous();
  return batch;
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds(std::chrono::steady_clock::duration span) {
  return std::chrono::duration<double>(span).count();
}

// The schedule's own idleness, a backward costing twice a forward.
std::vector<double> simulated_idle(const Stages& stages) {
  const Pipeline& pipeline = stages.pipeline();
  if (pipeline.schedule == nullptr) return {0};
  const int ranks = 1 + *std::max_element(pipeline.rank_of_stage.begin(), pipeline.rank_of_stage.end());
  const int microbatches = static_cast<int>(kRows / pipeline.config.microbatch_size);
  return schedule::simulate(pipeline.schedule->plan(ranks, pipeline.stages(), microbatches),
                            pipeline.rank_of_stage)
      .idle;
}

void run_rank(Job& job, PluginRegistry& plugins, const Node& configuration, Rendezvous& rendezvous) {
  const ModelConfig config = model_of();
  const auto units = [&](const Setup&) {
    return make_units(config, at::TensorOptions(at::kMeta).dtype(at::kFloat));
  };
  std::unique_lock one_at_a_time(job.mutex);  // the registry is not for several threads
  const Setup setup = engine::validate(configuration, plugins, rendezvous.world_size());
  Plan plan = engine::choose(setup, plugins);
  one_at_a_time.unlock();
  DeviceMesh mesh = mesh::build(setup.axes, rendezvous, "bench: three_d");
  Stages stages = parallel::build(units(setup), plan, mesh, {}, 1);
  Step step(stages, mesh, StepConfig{});
  const std::vector<Batch> batches = {batch_of(config.vocab_size, mesh.rank("dp"))};
  step.run(batches, 1e-4, 0.01);  // warms up
  RankTimes mine;
  const double used = processor_seconds();
  for (int i = 0; i < job.steps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    step.run(batches, 1e-4, 0.01);
    const double took = seconds(std::chrono::steady_clock::now() - start);
    mine.step = i == 0 ? took : std::min(mine.step, took);
  }
  mine.processor = (processor_seconds() - used) / job.steps;
  step.record(&mine.recording);
  step.run(batches, 1e-4, 0.01);
  const std::lock_guard lock(job.mutex);
  job.times[rendezvous.rank()] = std::move(mine);
  job.idle = simulated_idle(stages);
}

// One process of the trace for each rank, one event for each action; what it waited for is an argument.
void write_trace(const Job& job) {
  std::ofstream out(job.trace);
  auto origin = job.times.front().recording.actions.front().begin;
  for (const RankTimes& rank : job.times) origin = std::min(origin, rank.recording.actions.front().begin);
  const auto micros = [&](RanAction::Time time) { return 1e6 * seconds(time - origin); };
  out << "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  for (size_t rank = 0; rank < job.times.size(); ++rank) {
    out << "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": " << rank << ", \"args\": {\"name\": \"rank "
        << rank << "\"}},\n";
    for (const RanAction& ran : job.times[rank].recording.actions) {
      char line[320];
      std::snprintf(
          line, sizeof(line),
          "{\"ph\": \"X\", \"name\": \"%s\", \"cat\": \"%s\", \"pid\": %zu, \"tid\": 0, \"ts\": %.3f, "
          "\"dur\": %.3f, \"args\": {\"stage\": %d, \"microbatch\": %d, \"waited_us\": %.3f}},\n",
          schedule::name_of(ran.action).c_str(), schedule::computes(ran.action.kind) ? "compute" : "schedule",
          rank, micros(ran.begin), micros(ran.end) - micros(ran.begin), ran.action.stage,
          ran.action.microbatch, micros(ran.ready) - micros(ran.begin));
      out << line;
    }
  }
  out << "{\"ph\": \"M\", \"name\": \"trace_name\", \"pid\": 0, \"args\": {\"name\": \"heddle\"}}\n]}\n";
}

void print(const Job& job) {
  double step = 0, busiest = 0, all = 0;
  for (const RankTimes& rank : job.times) {
    step = std::max(step, rank.step);
    busiest = std::max(busiest, rank.processor);
    all += rank.processor;
  }
  const double idle = *std::max_element(job.idle.begin(), job.idle.end());
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const double ideal = std::max(busiest / (1 - idle), all / cores);
  std::printf("| what | ms |\n|---|--:|\n");
  std::printf("| the fastest step by the clock | %.1f |\n", 1e3 * step);
  std::printf("| the busiest rank on a core | %.1f |\n", 1e3 * busiest);
  std::printf("| the same with the schedule's idle share of %.0f %% | %.1f |\n", 100 * idle,
              1e3 * busiest / (1 - idle));
  std::printf("| all ranks on %u cores | %.1f |\n", cores, 1e3 * all / cores);
  std::printf("| the ideal, the larger of the two lines above | %.1f |\n", 1e3 * ideal);
  std::printf("\na step takes %.2f times the ideal; trace of a step: %s\n", step / ideal, job.trace.c_str());
}

}  // namespace

int main(int count, char** arguments) {
  Job job;
  if (count > 1) job.steps = std::atoi(arguments[1]);
  if (count > 2) job.trace = arguments[2];
  if (count > 3) job.section = arguments[3];
  if (count > 4) job.ranks = std::atoi(arguments[4]);
  job.times.resize(job.ranks);
  at::set_num_threads(1);
  try {
    const Node configuration = config::read_text("distributed: " + job.section + "\n", "bench");
    PluginRegistry plugins(plugin::search_path({}));
    ThreadWorld::run(job.ranks,
                     [&](Rendezvous& rendezvous) { run_rank(job, plugins, configuration, rendezvous); });
    print(job);
    write_trace(job);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

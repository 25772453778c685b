// Runs a benchmark's steps and gathers their times from all ranks.
#include "lib/run/loop/run.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <numeric>

#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/safetensors/file_writer.h"
#include "lib/cost/mfu.h"
#include "lib/cost/peak_memory.h"
#include "lib/report/benchmark_report.h"
#include "lib/run/facts/run_facts.h"
#include "lib/run/loop/stop.h"
#include "lib/run/trace/run_trace.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

// Minimum and maximum over all ranks of several times.
class Spreads {
 public:
  explicit Spreads(Rendezvous& rendezvous) {
    if (rendezvous.world_size() == 1) return;
    std::vector<int> all(static_cast<size_t>(rendezvous.world_size()));
    std::iota(all.begin(), all.end(), 0);
    world_ = rendezvous.group("benchmark", all);
  }

  // A collective: each rank passes the same number of times.
  std::vector<Spread> of(const std::vector<double>& times) {
    const auto count = static_cast<int64_t>(times.size());
    at::Tensor both = at::empty({2 * count}, at::kDouble);
    double* values = both.mutable_data_ptr<double>();
    for (int64_t i = 0; i < count; ++i) {
      values[i] = times[static_cast<size_t>(i)];
      values[count + i] = -values[i];
    }
    if (world_) world_->all_reduce(both, Reduce::max)->wait();
    std::vector<Spread> out;
    for (int64_t i = 0; i < count; ++i) out.push_back({-values[count + i], values[i]});
    return out;
  }

 private:
  std::unique_ptr<Communicator> world_;  // null: one rank
};

// Returns the parts of a step's time: the update, then each call of the schedule from its first action to its
// last. Empty if nothing was recorded.
std::vector<double> parts_of(const Recording& recording) {
  if (recording.phases.empty()) return {};
  std::vector<double> out(1);
  for (const RanPhase& phase : recording.phases)
    if (std::string_view(phase.name) == "update") out[0] += seconds(phase.end - phase.begin);
  std::map<int, std::pair<RanAction::Time, RanAction::Time>> calls;
  for (const RanAction& action : recording.actions) {
    auto [call, is_first] = calls.try_emplace(action.call, action.begin, action.end);
    call->second.first = std::min(call->second.first, action.begin);
    call->second.second = std::max(call->second.second, action.end);
  }
  for (const auto& [call, span] : calls) out.push_back(seconds(span.second - span.first));
  return out;
}

// The share of parameters with gradients: LoRA computes gradients of its own weights only.
double peft_share(const RunSpec& run, const ModelSize& size) {
  const bool has_adapters = std::any_of(run.recipe.sections.begin(), run.recipe.sections.end(),
                                        [](const PluginSection& section) { return section.name == "peft"; });
  if (!has_adapters || size.frozen == 0) return 1;
  return (2 + static_cast<double>(size.parameters - size.frozen) / static_cast<double>(size.frozen)) / 3;
}

class Benchmark {
 public:
  Benchmark(const RunSpec& run, PluginRegistry& plugins, Rendezvous& rendezvous, StopRequest& request)
      : run_(run),
        trace_(run.trace, rendezvous, 0, run.pipeline ? run.pipeline->schedule : ""),
        model_(build_model(run, plugins, trace_.rendezvous(), whole_)),
        optimizer_(run.recipe.optimizer.make()),
        step_(model_.stages, model_.mesh, step_config(run.recipe), *optimizer_),
        batches_(run.dataset, split_of(run, model_.mesh), run.model.spec->facts().vocabulary),
        spreads_(rendezvous),
        stop_(rendezvous, request) {
    checkpoint::on_first(rendezvous, "tokens", [&] { check_vocabulary(run); });
    const ModelSize size = size_of(whole_, model_.stages, step_.optimizer_state(), run.recipe.max_norm);
    const bool leads = rendezvous.rank() == 0;
    if (leads) show_header(run, size, model_, flops_of(run, model_, size), rendezvous.local_world_size());
    request.stepping = true;
    const Spread setup = spreads_.of({seconds(Clock::now() - begun_)}).front();
    if (leads) report_.emplace(facts(size, setup));
  }

  int run() {
    StepScheduler scheduler = run_.scheduler;
    std::optional<StepInfo> info, next;
    int signal = stop_.now();
    while (signal == 0 && (next = scheduler.next())) {
      info = next;
      time_one(*info);
      signal = stop_.now();
    }
    engine::settle(model_);
    trace_.finish(model_.stages, model_.mesh);
    if (info && info->last) signal = 0;
    if (!report_) return signal;
    if (signal != 0)
      std::cout << stopped_text(run_, signal, info) << std::endl;
    else
      finish();
    return signal;
  }

 private:
  BenchmarkFacts facts(const ModelSize& size, const Spread& setup) const {
    const StepSection& steps = run_.recipe.steps;
    const ModelSpec& model = *run_.model.spec;
    const double operations = automodel_flops(model.facts(), model.config_json("float32"),
                                              steps.global_batch_size, run_.dataset.length());
    const PeakFlops peak = peak_of(run_, model_);
    BenchmarkFacts out;
    out.steps = run_.scheduler.total_steps();
    out.warmup_steps = run_.recipe.benchmark->warmup_steps;
    out.tflop = operations / 1e12 * peft_share(run_, size);
    if (peak.flops > 0) out.peak_tflops = peak.flops / 1e12;
    out.ranks = run_.setup.sizes.world;
    out.global_batch_size = steps.global_batch_size;
    out.local_batch_size = steps.local_batch_size;
    out.row_length = run_.dataset.length();
    out.setup = setup;
    return out;
  }

  // A traced step is recorded by the trace; only its whole time is measured here.
  void time_one(const StepInfo& info) {
    Recording recording;
    const auto begin = Clock::now();
    step_.record(&recording);
    trace_.begin(step_, info.step);
    const auto microbatches =
        batches_.read(order_of(run_, info.epoch), info.begin, info.end, step_of(run_, whole_, info));
    const StepReport report =
        step_.run(microbatches, run_.rates.lr(info.step), run_.rates.weight_decay(info.step));
    if (model_.device) model_.device->synchronize();  // kernels run asynchronously
    const double whole = seconds(Clock::now() - begin);
    trace_.end(step_, info.step, model_.stages, model_.mesh);
    step_.settle();
    std::vector<double> times = parts_of(recording);
    times.insert(times.begin(), whole);
    const std::vector<Spread> all = spreads_.of(times);
    if (!report_) return;
    TimedStep timed{info.step, report.loss.item<double>(), report.label_tokens, peak_memory(), all[0], {},
                    {}};
    if (all.size() > 1) {
      timed.optimizer = all[1];
      timed.forward_backward.assign(all.begin() + 2, all.end());
    }
    std::cout << report_->add(timed) << std::flush;
  }

  double peak_memory() const {
    return model_.device ? static_cast<double>(model_.device->memory().peak) / (1 << 30) : peak_.gib();
  }

  void finish() {
    std::cout << report_->summary();
    const std::filesystem::path file = run_.recipe.benchmark->json;
    if (file.empty()) return;
    if (file.has_parent_path()) checkpoint::make_directories(file.parent_path());
    const std::string json = report_->json();
    checkpoint::FileWriter writer(file.string());
    writer.write(json.data(), json.size());
    writer.finish();
    std::cout << "Benchmark summary saved to " << std::filesystem::absolute(file).string() << std::endl;
  }

  const Clock::time_point begun_ = Clock::now();
  const RunSpec& run_;
  RunTrace trace_;
  WholeModel whole_;
  engine::Model model_;
  std::unique_ptr<IOptimizer> optimizer_;
  Step step_;
  Batches batches_;
  Spreads spreads_;
  StopAgreement stop_;
  PeakMemory peak_;
  std::optional<BenchmarkReport> report_;  // set on rank 0
};

}  // namespace

int run_benchmark(const RunSpec& run, PluginRegistry& plugins, Rendezvous& rendezvous, StopRequest& request) {
  return Benchmark(run, plugins, rendezvous, request).run();
}

}  // namespace heddle

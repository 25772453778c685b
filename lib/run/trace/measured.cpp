// Averages recorded actions and simulates the pipeline with them.
#include "lib/run/trace/measured.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

namespace heddle {
namespace {

using Ran = std::vector<RanAction>;

constexpr double kLook = 10e-6;  // seconds: cost of polling for a result that is ready

double seconds_of(RanAction::Time::duration span) {
  return std::chrono::duration<double>(span).count();
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

class Measuring {
 public:
  Measuring(std::span<const Ran> ranks, std::span<const int> rank_of_stage)
      : ranks_(ranks), rank_of_(rank_of_stage) {
    for (const Ran& rank : ranks)
      for (const RanAction& ran : rank) a_call_ = std::max(a_call_, ran.action.microbatch + 1);
  }

  MeasuredPipeline measure() {
    for (const Ran& rank : ranks_) add_row(rank);
    set_costs();
    set_transfers();
    set_idle();
    out_.simulated = schedule::simulate(out_.table, rank_of_, out_.costs);
    return std::move(out_);
  }

 private:
  using Made = std::tuple<bool, int, int>;  // forward, stage, microbatch
  static bool is_forward(const RanAction& ran) { return ran.action.kind == Action::forward; }

  // Calls `call` for every action whose result another stage takes.
  template <class Call>
  void each(const Call& call) const {
    for (const Ran& rank : ranks_)
      for (const RanAction& ran : rank)
        if (schedule::computes(ran.action.kind) && ran.action.kind != Action::backward_weight) call(ran);
  }

  int microbatch_of(const RanAction& ran) const { return ran.call * a_call_ + ran.action.microbatch; }

  void add_row(const Ran& rank) {
    auto& row = out_.table.emplace_back();
    for (const RanAction& ran : rank) {
      if (!schedule::computes(ran.action.kind)) continue;
      row.push_back(ran.action);
      row.back().microbatch = microbatch_of(ran);
      out_.microbatches = std::max(out_.microbatches, microbatch_of(ran) + 1);
    }
  }

  void set_costs() {
    struct Sum {
      double seconds = 0;
      int count = 0;
    };
    std::vector<std::map<Action::Kind, Sum>> sums(rank_of_.size());
    for (const Ran& rank : ranks_)
      for (const RanAction& ran : rank) {
        if (!schedule::computes(ran.action.kind)) continue;
        Sum& sum = sums[ran.action.stage][ran.action.kind];
        sum.seconds += seconds_of(ran.work());
        ++sum.count;
      }
    for (auto& stage : sums) {
      const auto mean = [&](Action::Kind kind) {
        const Sum& sum = stage[kind];
        return sum.count == 0 ? 0 : sum.seconds / sum.count;
      };
      out_.costs.push_back({mean(Action::forward), mean(Action::backward), mean(Action::backward_input),
                            mean(Action::backward_weight), 0});
    }
  }

  // Sets transfer times: from the end of a computation until the rank that waited for its result continues.
  // If that rank waited before the result was ready, the time is exact; else it is an upper bound, and the
  // minimum is the best estimate. An overlapped action may also have waited for its turn, so it is skipped.
  void set_transfers() {
    std::map<Made, RanAction::Time> made;
    each([&](const RanAction& ran) {
      made[{is_forward(ran), ran.action.stage, microbatch_of(ran)}] = ran.end;
    });
    std::map<int, std::vector<double>> sure, late;  // [lower stage of the edge]
    each([&](const RanAction& ran) {
      const int from = ran.action.stage + (is_forward(ran) ? -1 : 1);
      const auto found = made.find({is_forward(ran), from, microbatch_of(ran)});
      if (found == made.end() || ran.overlapped || rank_of_[from] == rank_of_[ran.action.stage]) return;
      const bool waited = found->second > ran.begin;
      if (!waited && seconds_of(ran.ready - ran.begin) < kLook) return;
      (waited ? sure : late)[std::min(from, ran.action.stage)].push_back(
          seconds_of(ran.ready - found->second));
    });
    for (const auto& [edge, all] : late)
      out_.costs[edge].transfer = std::max(0.0, *std::min_element(all.begin(), all.end()));
    for (auto& [edge, all] : sure) {
      std::nth_element(all.begin(), all.begin() + all.size() / 2, all.end());
      out_.costs[edge].transfer = std::max(0.0, all[all.size() / 2]);
    }
  }

  void set_idle() {
    auto first = RanAction::Time::max(), last = RanAction::Time::min();
    std::vector<double> busy;
    for (const Ran& rank : ranks_) {
      double& mine = busy.emplace_back(0);
      for (const RanAction& ran : rank) {
        if (!schedule::computes(ran.action.kind)) continue;
        first = std::min(first, ran.ready);
        last = std::max(last, ran.end);
        mine += seconds_of(ran.work());
      }
    }
    out_.length = std::max(seconds_of(last - first), std::numeric_limits<double>::min());
    for (const double mine : busy) out_.idle.push_back(1 - mine / out_.length);
  }

  std::span<const Ran> ranks_;
  std::span<const int> rank_of_;
  int a_call_ = 1;  // microbatches per call
  MeasuredPipeline out_;
};

}  // namespace

double MeasuredPipeline::mean_idle() const {
  return mean_of(idle);
}

double MeasuredPipeline::mean_simulated_idle() const {
  return mean_of(simulated.idle);
}

MeasuredPipeline measure(std::span<const std::vector<RanAction>> ranks, std::span<const int> rank_of_stage) {
  return Measuring(ranks, rank_of_stage).measure();
}

}  // namespace heddle

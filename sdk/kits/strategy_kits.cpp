// Runs trainings with a strategy, and compares each with `single` on one rank.
#include "strategy_kits.h"

#include <ATen/ops/equal.h>

#include <cmath>
#include <utility>
#include <vector>

namespace heddle::kits {
namespace {

using Drive = TrainingRun::Drive;
using Checkpointing = ActivationCheckpointing;

// Returns the results of the same steps on one rank with one microbatch after the other.
Outcome oracle(const TrainingRun& training) {
  TrainingRun plain;
  plain.shape = training.shape;
  plain.adamw = training.adamw;
  plain.restarts = training.restarts;
  plain.first_step = training.first_step;
  plain.steps = training.steps;
  return train(single(), plain);
}

// Compares the losses of an approximate strategy within its own tolerance.
void compare_losses(const Outcome& got, const Outcome& want, double most) {
  for (size_t i = 0; i < want.losses.size(); ++i) {
    const double apart = std::abs(got.losses.at(i) - want.losses[i]) / std::abs(want.losses[i]);
    if (!(apart <= most))
      found("the loss of step " + std::to_string(i) + " differs by " + written(apart) +
            " from that of the strategy `single`, but needs().approximate allows " + written(most));
  }
}

// Trains, compares with `single`, and returns the difference as text.
std::string same_as_single(const Subject& subject, const TrainingRun& training) {
  if (const std::string why = refusal(subject, training); !why.empty()) throw NotRun{why};
  const Outcome want = oracle(training), got = train(subject, training);
  if (subject.needs.approximate)
    compare_losses(got, want, subject.needs.approximate->loss);
  else
    compare(got, want);
  return distance(got, want);
}

std::string all_of(const Subject& subject, const std::vector<TrainingRun>& trainings) {
  std::string last;
  for (const TrainingRun& training : trainings) last = same_as_single(subject, training);
  return last;
}

std::string lists_all(const Subject& subject, TrainingRun training) {
  training.shape.unused = training.shape.tied = training.shape.frozen = training.lists_all = true;
  training.steps = 0;
  if (const std::string why = refusal(subject, training); !why.empty()) throw NotRun{why};
  return std::to_string(train(subject, training).parameters.size()) + " parameters";
}

std::string same_bits_twice(const Subject& subject, TrainingRun training) {
  training.shape.tied = true;
  if (const std::string why = refusal(subject, training); !why.empty()) throw NotRun{why};
  const Outcome one = train(subject, training), two = train(subject, training);
  for (const auto& [name, tensor] : one.parameters)
    if (!at::equal(tensor, two.parameters.at(name))) found("'" + name + "' differs between two runs");
  return "";
}

// Compares six steps with three steps followed by three steps of a new stage that gets the first one's state.
std::string continues_stage(const Subject& subject, TrainingRun training) {
  training.shape.tied = true;
  if (const std::string why = refusal(subject, training); !why.empty()) throw NotRun{why};
  Kept half, want, got;
  TrainingRun whole = training, first = training, second = training;
  whole.steps = 6, first.steps = second.steps = second.first_step = 3;
  whole.keeps = &want, first.keeps = &half, second.resumes = &half, second.keeps = &got;
  for (const TrainingRun* each : {&whole, &first, &second}) (void)train(subject, *each);
  const RankTensors& any_rank = want.ranks.begin()->second;
  for (const auto& [rank, tensors] : want.ranks)
    for (size_t i = 0; i < tensors.tensors.size(); ++i)
      if (!at::equal(tensors.tensors[i], got.ranks.at(rank).tensors.at(i)))
        found(
            tensors.names[i] + " is not bitwise equal on rank " + std::to_string(rank) +
            " after six steps, and after three steps and three steps of a new stage with the same shards and "
            "state(): return everything that a stage keeps between steps from state()");
  return std::to_string(any_rank.tensors.size() - any_rank.shards) + " tensors of state";
}

bool keeps_state(const Subject& subject, TrainingRun training) {
  Kept kept;
  training.adamw = false, training.steps = 0, training.keeps = &kept;
  (void)train(subject, training);
  const RankTensors& held = kept.ranks.begin()->second;
  return held.tensors.size() > held.shards;
}

// Saves after three steps, and continues for three steps with another number of ranks.
std::string resumes(const Subject& subject, TrainingRun training) {
  training.adamw = true;
  TrainingRun all = training;
  all.steps = 6;
  TrainingRun other = training;
  other.dp = training.dp + 1;
  for (const TrainingRun* each : {&training, &other})
    if (const std::string why = refusal(subject, *each); !why.empty()) throw NotRun{why};
  if (keeps_state(subject, training))
    throw NotRun{"its stages have state(), which this kit does not save; see the kit of state()"};
  const Outcome want = oracle(all);
  std::string out;
  for (const auto& [before, after] : {std::pair(training, other), std::pair(other, training)}) {
    TrainingRun first = before, second = after;
    first.steps = second.steps = second.first_step = 3;
    const Outcome saved = train(subject, first);
    second.from = &saved;
    Outcome rest;
    rest.losses.assign(want.losses.begin() + 3, want.losses.end());
    rest.norms.assign(want.norms.begin() + 3, want.norms.end());
    rest.parameters = want.parameters;
    const Outcome got = train(subject, second);
    if (subject.needs.approximate)
      compare_losses(got, rest, subject.needs.approximate->loss);
    else
      compare(got, rest);
    out = std::to_string(other.dp) + " ranks and back: " + distance(got, rest);
  }
  return out;
}

struct Kit {
  const char* sentence;
  std::function<std::string(const Subject&, const TrainingRun&)> run;
};

// Returns a kit of training runs that differ from the plain training run in a few members.
template <class... Changes>
std::function<std::string(const Subject&, const TrainingRun&)> trains(Changes... changes) {
  return [=](const Subject& subject, const TrainingRun& plain) {
    std::vector<TrainingRun> trainings;
    const auto add = [&](const auto& change) {
      TrainingRun training = plain;
      change(training);
      trainings.push_back(training);
    };
    (add(changes), ...);
    return all_of(subject, trainings);
  };
}

std::vector<Kit> kits_of_values() {
  return {
      {"owned(): this rank's shards; empty shards are listed too", lists_all},
      {"parallelize(): parameters on meta get storage, and core sets each element once",
       trains([](TrainingRun& c) { c.steps = 1; })},
      {"parallelize(): parameters with values are copied from; a foreign slot is changed in place",
       trains([](TrainingRun& c) { c.shape.foreign = true; },
              [](TrainingRun& c) { c.shape.foreign = c.shape.tied = c.shape.frozen = true; })},
      {"parallelize(): parameters with values get those of the first data-parallel rank",
       trains(
           [](TrainingRun& c) { c.shape.foreign = c.shape.tied = c.shape.frozen = c.values_differ = true; },
           [](TrainingRun& c) { c.shape.valued = c.shape.tied = c.shape.frozen = c.values_differ = true; })},
      {"owned(): a tied parameter once", trains([](TrainingRun& c) { c.shape.tied = true; },
                                                [](TrainingRun& c) { c.shape.tied = c.adamw = true; })},
      {"owned(): one rank may own everything and the other ranks nothing",
       trains([](TrainingRun& c) { c.shape.one_number = true; },
              [](TrainingRun& c) { c.shape.one_number = c.adamw = true; })},
      {"Shard::axes: the norm of a shard is summed over exactly these axes",
       trains([](TrainingRun& c) { c.adamw = true, c.steps = 6; })},
      {"parameters_changed(): called after core wrote to the owned shards: a checkpoint's values",
       trains([](TrainingRun& c) { c.reloads = true; })},
      {"hold_whole(): whole parameters from the shards of all data-parallel ranks",
       trains([](TrainingRun& c) { c.unshards = c.shape.tied = true; },
              [](TrainingRun& c) { c.unshards = c.adamw = c.shape.frozen = true; })},
      {"state(): a run continues from copied values with the same bits", continues_stage},
      {"a checkpoint can be read by another number of ranks", resumes},
      {"two runs are bitwise equal", same_bits_twice},
  };
}

std::vector<Kit> kits_of_gradients() {
  return {
      {"finish_gradients(): the sum over the data-parallel ranks and all microbatches of the step",
       trains([](TrainingRun& c) { c.steps = 3; })},
      {"finish_gradients(): undefined where no rank had one",
       trains([](TrainingRun& c) { c.shape.unused = true; },
              [](TrainingRun& c) { c.shape.unused = c.adamw = true; })},
      {"finish_gradients(): completes everything by itself, without reduce_gradients(), unshard(), reshard()",
       trains([](TrainingRun& c) { c.drive = Drive::by_hand; },
              [](TrainingRun& c) { c.drive = Drive::by_hand, c.shape.unused = c.shape.tied = true; })},
      {"a parameter that requires no gradient gets none and keeps its value",
       trains([](TrainingRun& c) { c.shape.frozen = true; },
              [](TrainingRun& c) { c.shape.frozen = c.adamw = true; })},
      {"gradients of several buckets: a model larger than the smallest bucket",
       trains([](TrainingRun& c) { c.shape.width = 300, c.shape.layers = 5, c.steps = 2; })},
      {"forward(): several microbatches may be in flight",
       trains([](TrainingRun& c) { c.drive = Drive::forwards_first, c.shape.tied = true; })},
      {"expect_last_backward(): with split backwards it comes before the last drain",
       trains([](TrainingRun& c) { c.drive = Drive::split, c.shape.tied = true; },
              [](TrainingRun& c) { c.drive = Drive::split, c.shape.modules = c.adamw = true; })},
      {"forward(): units may be recomputed in the backward",
       trains([](TrainingRun& c) { c.checkpointing = Checkpointing::full, c.shape.tied = true; },
              [](TrainingRun& c) { c.checkpointing = Checkpointing::full, c.shape.modules = true; })},
      {"Needs::may_use: selective_activation_checkpointing",
       trains([](TrainingRun& c) { c.checkpointing = Checkpointing::selective, c.shape.modules = true; })},
      {"forward(): an evaluation between two steps changes nothing",
       trains([](TrainingRun& c) { c.evaluates = true, c.shape.unused = true; },
              [](TrainingRun& c) { c.evaluates = true, c.drive = Drive::by_hand; },
              [](TrainingRun& c) { c.evaluates = true, c.adamw = true; })},
  };
}

std::vector<Kit> kits_of_topologies() {
  return {
      {"with tensor parallelism: a parameter is this rank's part",
       trains([](TrainingRun& c) { c.tp = 2, c.adamw = true; },
              [](TrainingRun& c) { c.tp = 2, c.adamw = c.unshards = c.shape.tied = true; })},
      {"with pipeline parallelism: the units of one stage",
       trains([](TrainingRun& c) { c.pp = 2, c.drive = Drive::pipeline; },
              [](TrainingRun& c) { c.pp = 2, c.drive = Drive::split, c.adamw = c.evaluates = true; })},
      {"Needs::may_use: post_validation",
       trains([](TrainingRun& c) { c.pp = 2, c.drive = Drive::pipeline, c.adamw = c.restarts = true; },
              [](TrainingRun& c) { c.pp = 2, c.drive = Drive::split, c.adamw = c.restarts = true; })},
      {"with replicas: the axis dp_replicate",
       trains([](TrainingRun& c) { c.replicas = 2; }, [](TrainingRun& c) { c.replicas = 2, c.adamw = true; },
              [](TrainingRun& c) { c.replicas = 2, c.shape.foreign = c.values_differ = true; })},
  };
}

}  // namespace

void run_strategy_kits(const Subject& subject, int ranks, Attempts& attempt) {
  const std::string thing = "strategy '" + subject.name + "'" + subject.fields + " on " +
                            std::to_string(ranks) + (ranks == 1 ? " rank: " : " ranks: ");
  TrainingRun plain;
  plain.dp = ranks;
  plain.device = check_device();
  for (const auto& kits : {kits_of_values(), kits_of_gradients(), kits_of_topologies()})
    for (const Kit& kit : kits)
      attempt.training(thing + kit.sentence, [&] { return kit.run(subject, plain); });
}

}  // namespace heddle::kits

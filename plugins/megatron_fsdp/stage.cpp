// The forward: gather this unit, start the next ones' gathers, run, free; and what happens between steps.
#include "stage.h"

#include <ATen/core/grad_mode.h>

#include <limits>
#include <utility>

namespace heddle::megatron_fsdp {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max() / 2;

// By default two of the largest units may be on their way to be reduced where their buffers are freed after
// it; others stay anyway.
int64_t reduce_limit(const Options& options, const Model& model) {
  if (options.elements_in_flight) return *options.elements_in_flight;
  return options.split.gradients ? 2 * model.largest_unit() : kUnlimited;
}

int64_t gather_room(const Options& options, const Model& model) {
  if (!options.overlap_gather) return 0;
  if (options.elements_in_flight) return *options.elements_in_flight / 2;
  return options.split.parameters ? model.largest_unit() : model.largest_bucket();
}

// Nothing is split over one rank, so that its gradients are reduced once a step and not once a microbatch.
Options fitting(Options options, const Ranks& ranks) {
  if (ranks.shards == 1) options.split = {};
  return options;
}

Communicator* everyone(const Ranks& ranks, const DeviceMesh& mesh) {
  if (ranks.all() == 1) return nullptr;
  if (ranks.replicas == 1) return ranks.gather;
  return ranks.shards == 1 ? ranks.copies : &mesh.group(Reductions(mesh, {}).dense().all);
}

}  // namespace

Stage::Stage(Units units, std::span<const Placed> placed, const Options& options, const Ranks& ranks,
             const DeviceMesh& mesh)
    : options_(fitting(options, ranks)),
      mesh_(mesh),
      ranks_(ranks),
      model_(std::make_unique<Model>(std::move(units), placed, options_, ranks)),
      checks_(options, mesh.meeting().rank(), mesh.log()),
      presence_(model_->gradients, everyone(ranks, mesh)),
      room_(gather_room(options_, *model_)),
      walk_(*this, model_->runs.size()) {
  std::unique_ptr<Communicator> sums;
  if (ranks.shards > 1) sums = mesh_.meeting().group(ranks.axis, mesh_.ranks(ranks.axis));
  reducer_ = std::make_unique<Reducer>(options_, ranks, std::move(sums), model_->order,
                                       reduce_limit(options_, *model_), checks_);
  for (size_t bucket = 0; bucket < model_->gradients.size(); ++bucket)
    for (const Member& member : model_->gradients[bucket].bucket().members())
      walk_.add(member.leaf, bucket, member.users);
}

// What was gathered ahead of a step that never came is waited for; the others wait as well.
Stage::~Stage() {
  try {
    for (Bucket& bucket : model_->buckets) bucket.finish();
  } catch (...) {  // a rank is gone, and its loss has been told elsewhere
  }
}

double Stage::gradient_divisor() const {
  return options_.averaging == Averaging::none ? 1.0 : static_cast<double>(ranks_.all());
}

void Stage::begin_step() {
  for (Gradients& gradients : model_->gradients) gradients.begin();
  between_steps_ = flushed_ = false;
  microbatch_ = 0;
}

void Stage::start(Run& run) {
  for (Bucket* bucket : run.buckets) bucket->start(ranks_);
}

void Stage::finish(Run& run) {
  for (Bucket* bucket : run.buckets) bucket->finish();
}

int64_t Stage::start_within(Run& run, int64_t room) {
  int64_t more = 0;
  for (const Bucket* bucket : run.buckets)
    if (bucket->resting() || bucket->in_flight()) more += bucket->elements();
  if (more > room) return -1;
  start(run);
  return room - more;
}

void Stage::gather_ahead(size_t index) {
  if (room_ == 0 || (!options_.split.parameters && !pending_)) return;
  int64_t room = room_;
  const bool by_turns = options_.buffering != Buffering::from_the_allocator;
  for (size_t next = index + 1; next < model_->runs.size(); ++next) {
    room = start_within(model_->runs[next], room);
    if (room < 0 || by_turns) return;
  }
}

Tensors Stage::forward(Tensors inputs, const Batch& batch) {
  if (between_steps_ && at::GradMode::is_enabled()) begin_step();
  const Batch* given = &batch;
  Batch mine;
  if (options_.weights_last && batch.weight_gradients == nullptr && at::GradMode::is_enabled()) {
    mine = batch;
    mine.weight_gradients = own_queue();
    given = &mine;
  }
  std::vector<Run>& runs = model_->runs;
  for (size_t i = 0; i < runs.size(); ++i) {
    start(runs[i]);
    finish(runs[i]);
    gather_ahead(i);
    inputs = runs[i].unit->forward(std::move(inputs), *given);
    walk_.watch(i, inputs, given->weight_gradients);
    release_after_forward(i);
  }
  pending_ = false;
  return inputs;
}

// What the next unit computes with as well is left to it. What belongs to no unit stays to the end of the
// step, if there is a backward to come.
void Stage::release_after_forward(size_t index) {
  if (!options_.split.parameters) return;
  const Run& run = model_->runs[index];
  const Run* next = index + 1 < model_->runs.size() ? &model_->runs[index + 1] : nullptr;
  for (Bucket* bucket : run.buckets)
    if ((!bucket->kept || !at::GradMode::is_enabled()) && (next == nullptr || !next->uses(bucket)))
      free(*bucket);
}

void Stage::free(Bucket& bucket) {
  if (!held_) bucket.free();
}

void Stage::unshard() {
  if (!model_->runs.empty()) start(model_->runs.front());
}

void Stage::reshard() {
  for (Bucket& bucket : model_->buckets) {
    bucket.finish();
    free(bucket);
  }
}

void Stage::parameters_changed() {
  for (Bucket& bucket : model_->buckets) {
    bucket.finish();
    bucket.free();
    bucket.changed();
  }
  pending_ = true;
  if (!options_.split.parameters && (options_.gather_all_after_update || !options_.overlap_gather))
    for (Run& run : model_->runs) start(run);
  else if (options_.gather_first_after_update)
    unshard();
  if (options_.overlap_gather) return;
  for (Bucket& bucket : model_->buckets) bucket.finish();
}

void Stage::expect_last_backward() {
  last_backward_ = true;
  reducer_->expect_last();
}

void Stage::reduce_gradients() {
  if (between_steps_) begin_step();  // no microbatch at all: every gradient is missing
  if (std::exchange(flushed_, true)) return;
  reducer_->expect_last();
  reducer_->flush();
  presence_.start();
}

void Stage::finish_gradients() {
  reduce_gradients();
  reducer_->finish();
  presence_.finish(model_->gradients);
  between_steps_ = true;
  last_backward_ = false;
}

std::vector<WholeParameter> Stage::hold_whole() {
  held_ = true;
  std::vector<WholeParameter> whole;
  for (Bucket& bucket : model_->buckets) bucket.start(ranks_);
  for (Bucket& bucket : model_->buckets) {
    bucket.finish();
    for (const Member& member : bucket.members()) whole.push_back({member.name, member.leaf.detach()});
  }
  return whole;
}

void Stage::release_whole() {
  held_ = false;
  for (Bucket& bucket : model_->buckets) bucket.free();
}

}  // namespace heddle::megatron_fsdp

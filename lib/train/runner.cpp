// Runs the turns of one rank: opens a batch, then forwards, backwards and transfers in the order of the
// schedule. Without a pipeline a turn is the forward or the backward of the whole batch.
#include "lib/train/runner.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "core/mesh/overlap.h"
#include "core/parallel/checks/name_units.h"
#include "core/schedule/microbatches.h"
#include "heddle/base/error.h"
#include "heddle/mesh/call.h"
#include "heddle/model/autocast.h"
#include "heddle/ops/compute_log.h"
#include "heddle/schedule/simulate.h"
#include "lib/train/optimizer/on_device.h"

namespace heddle::train {
namespace {

int find_stage(const std::vector<int>& indices, int stage) {
  const auto found = std::find(indices.begin(), indices.end(), stage);
  return found == indices.end() ? -1 : static_cast<int>(found - indices.begin());
}

void add_sizes(std::vector<int64_t>& shape, const at::Tensor& tensor) {
  if (!tensor.defined()) return shape.push_back(-1);
  shape.push_back(static_cast<int64_t>(tensor.scalar_type()));
  shape.push_back(tensor.dim());
  shape.insert(shape.end(), tensor.sizes().begin(), tensor.sizes().end());
}

// Without the pool buffers are made anew; with it a rank keeps what its schedule needs at most, and some
// more.
Buffers buffers_of(const PipelineConfig& config, int stages) {
  if (!config.keep_receive_buffers) return Buffers(0);
  return Buffers(2 * static_cast<size_t>(stages) + static_cast<size_t>(config.buffer_slack));
}

// Each stage's rank with that of the next, both ways.
void connect_neighbours(Communicator& group, const std::vector<int>& rank_of_stage) {
  std::vector<mesh::TransferPair> transfers;
  for (size_t stage = 0; stage + 1 < rank_of_stage.size(); ++stage) {
    const int here = rank_of_stage[stage], next = rank_of_stage[stage + 1];
    if (here == next) continue;
    transfers.emplace_back(here, next);
    transfers.emplace_back(next, here);
  }
  mesh::connect(group, transfers);
}

}  // namespace

Runner::Runner(Stages& stages, const DeviceMesh& mesh)
    : stages_(stages),
      mesh_(mesh),
      ranks_(mesh.size(kPipelineAxis)),
      sides_(stages.attached().side_outputs, mesh.device()),
      overlap_(stages.pipeline().config.overlap ? mesh.overlap() : nullptr) {
  const Pipeline& pipeline = stages.pipeline();
  const std::vector<int>& indices = stages.indices();
  for (size_t local = 0; local < stages.size(); ++local) {
    LocalStage& one = locals_.emplace_back();
    one.stage = stages[local].get();
    one.index = indices[local];
    one.first = one.index == 0;
    one.last = one.index + 1 == pipeline.stages();
    one.before = find_stage(indices, one.index - 1);
    one.after = find_stage(indices, one.index + 1);
  }
  if (ranks_ == 1) return;
  connect_neighbours(mesh_.group(kPipelineAxis), pipeline.rank_of_stage);
  wires_.emplace(&mesh_.group(kPipelineAxis), pipeline.stages(), pipeline.dtype,
                 buffers_of(pipeline.config, pipeline.stages()), mesh_.device(), elsewhere());
}

Wires::Elsewhere Runner::elsewhere() {
  if (!stages_.has_elsewhere()) return {};
  return [this](int stage, Tensors inputs) {
    return stages_.forward_elsewhere(stage, std::move(inputs), microbatch_of(batch_, cut_, 0));
  };
}

at::Tensor Runner::train(std::span<const Batch> batches, const std::function<double()>& scale,
                         const std::function<double()>& microbatches, UpdateInDoubt* doubt,
                         const std::function<void()>& check_counts) {
  check_counts_ = check_counts ? &check_counts : nullptr;
  scale_ = &scale;
  all_microbatches_ = &microbatches;
  doubt_ = doubt;
  root_.reset();
  begin_sides();
  return run(batches, schedule::Purpose::training);
}

void Runner::begin_sides() {
  sides_.begin([this](LossDivisor divisor) { return side_scale(divisor); });
}

at::Tensor Runner::evaluate(std::span<const Batch> batches, const std::function<void()>& check_counts) {
  at::NoGradGuard no_gradients;
  check_counts_ = check_counts ? &check_counts : nullptr;
  doubt_ = nullptr;
  sides_.begin({});
  return run(batches, schedule::Purpose::evaluation);
}

at::Tensor Runner::run(std::span<const Batch> batches, schedule::Purpose purpose) {
  const Stages::Scheduled scheduled(stages_);
  purpose_ = purpose;
  sum_ = at::zeros({1}, at::TensorOptions(at::kDouble).device(mesh_.device()));
  for (size_t i = 0; i < batches.size(); ++i) {
    call_ = static_cast<int>(i);
    last_call_ = i + 1 == batches.size();
    if (i > 0) check_counts_once();
    open(batches[i]);
    size_t done = 0;
    if (doubt_ != nullptr && i == 0) {
      open_in_doubt(batches[i]);
      done = program_->opening.turns;
    }
    run_turns(done, program_->turns.size());
  }
  if (wires_) wires_->settle();
  return std::move(sum_);
}

void Runner::check_counts_once() {
  if (check_counts_ != nullptr) (*std::exchange(check_counts_, nullptr))();
}

const Program& Runner::program(int microbatches) {
  auto& programs = programs_[static_cast<int>(purpose_)];
  auto found = programs.find(microbatches);
  if (found == programs.end())
    found = programs.emplace(microbatches, make_program(stages_, ranks_, microbatches, purpose_)).first;
  return found->second;
}

int64_t Runner::count_microbatches(std::span<const Batch> batches) const {
  int64_t count = 0;
  for (const Batch& batch : batches) count += microbatches_with_text(batch, stages_.pipeline());
  return count;
}

void Runner::open(const Batch& given) {
  Batch batch = given;
  batch.side_outputs = &sides_;
  {
    std::optional<SideOutputs::Again>
        counted;  // all ranks of a pipeline transform the same batch: metrics count once
    if (stages_.rank() != 0) counted.emplace();
    stages_.transform(batch, mesh_);
  }
  cut_ = cut_of(batch, stages_.pipeline());
  batch_ = on_device(batch, mesh_.device());
  program_ = &program(cut_.microbatches);
  if (stages_.pipeline().config.gradients == GradientScale::by_microbatches) root_.reset();
  for (LocalStage& stage : locals_)
    if (stage.microbatches.size() < static_cast<size_t>(cut_.microbatches))
      stage.microbatches.resize(cut_.microbatches);
  if (!wires_) return;
  if (!warned_) warn_of_bubble();
  shape_.assign({static_cast<int64_t>(purpose_), cut_.rows});
  for (const BatchMember& member : kBatchMembers)
    if (member.shapes) add_sizes(shape_, batch_.*member.tensor);
  wires_->choose_shape(shape_);
}

void Runner::warn_of_bubble() {
  const std::string warning = schedule::bubble_warning(cut_.microbatches, stages_.pipeline().stages());
  if (warning.empty()) return;
  warned_ = true;
  if (mesh_.rank("world") == 0) mesh_.log().warning("train", warning);
}

void Runner::forward(const Turn& turn, RanAction* ran) {
  LocalStage& stage = locals_[turn.local];
  MicrobatchState& state = stage.microbatches[turn.action.microbatch];
  state.batch = microbatch_of(batch_, cut_, turn.action.microbatch);
  if (program_->splits && purpose_ == schedule::Purpose::training) {
    if (!state.weights) state.weights = std::make_unique<WeightGradients>();
    state.batch.weight_gradients = state.weights.get();
  }
  if (!stage.first && stage.before < 0) {
    await_inputs();
    state.inputs = wires_->take_forward(std::move(state.arriving), stage.index - 1);
  }
  note_ready(ran);
  Tensors outputs = stage.stage->forward(state.inputs, state.batch);  // the stage of the strategy
  if (purpose_ == schedule::Purpose::training) {
    peak_alive_ = std::max(peak_alive_, ++alive_);
  } else {
    state.inputs.clear();
    state.batch = Batch();
  }
  if (stage.last) return take_loss(state, outputs);
  pass_on(stage, state, turn.action.microbatch, std::move(outputs));
}

void Runner::take_loss(MicrobatchState& state, const Tensors& outputs) {
  if (outputs.size() != 1 || outputs[0].numel() != 1)
    throw Error(ErrorCode::internal, "train", "the last unit returned no loss",
                "return one tensor of one element, the sum of the token losses");
  sum_.add_(outputs[0].detach());
  if (purpose_ == schedule::Purpose::evaluation || !outputs[0].requires_grad()) return;
  if (!root_.defined()) root_ = root_gradient(outputs[0]);
  state.roots.push_back(torch::autograd::impl::gradient_edge(outputs[0]));
}

void Runner::pass_on(LocalStage& stage, MicrobatchState& state, int microbatch, Tensors outputs) {
  for (const at::Tensor& output : outputs)
    if (output.defined() && output.requires_grad())
      state.roots.push_back(torch::autograd::impl::gradient_edge(output));
  if (stage.after < 0) return void(state.outputs = std::move(outputs));
  for (at::Tensor& output : outputs) {
    if (!output.defined()) continue;
    const bool gradient = output.requires_grad();
    output = output.detach().set_requires_grad(gradient);
  }
  locals_[stage.after].microbatches[microbatch].inputs = std::move(outputs);
}

void Runner::send(const Turn& turn) {
  LocalStage& stage = locals_[turn.local];
  MicrobatchState& state = stage.microbatches[turn.action.microbatch];
  if (turn.action.kind == Action::send_forward)
    wires_->send_forward(std::exchange(state.outputs, {}), stage.index, turn.peer, turn.tag);
  else
    wires_->send_backward(std::exchange(state.input_gradients, {}), turn.peer, turn.tag);
}

void Runner::receive(const Turn& turn) {
  LocalStage& stage = locals_[turn.local];
  MicrobatchState& state = stage.microbatches[turn.action.microbatch];
  if (turn.action.kind == Action::receive_forward)
    state.arriving = wires_->receive_forward(stage.index - 1, turn.peer, turn.tag);
  else
    state.returning = wires_->receive_backward(stage.index, turn.peer, turn.tag);
}

void Runner::run_turns(size_t from, size_t to) {
  const std::vector<Turn>& turns = program_->turns;
  for (size_t at = from; at < to; ++at) {
    if (at + 1 == to || !overlap(turns[at], turns[at + 1])) {
      run_turn(turns[at]);
      continue;
    }
    model::Autocast* const autocast = model::Autocast::active();
    overlap_->run(
        [&] { run_turn(turns[at]); },
        [&] {
          const model::Autocast::Scope same(autocast == model::Autocast::active() ? nullptr : autocast);
          run_turn(turns[at + 1]);
        });
    ++at;
  }
}

// A forward and a backward of different stages. Two forwards would draw random numbers in turns, two
// backwards share autograd's thread of a device, and actions on one stage its gathered parameters.
bool Runner::overlap(const Turn& turn, const Turn& next) const {
  const auto backward = [](const Turn& turn) {
    return turn.action.kind == Action::backward || turn.action.kind == Action::backward_input;
  };
  const auto forward = [](const Turn& turn) { return turn.action.kind == Action::forward; };
  return overlap_ != nullptr && turn.action.overlaps_next && turn.local != next.local &&
         ((forward(turn) && backward(next)) || (backward(turn) && forward(next)));
}

void Runner::run_turn(const Turn& turn) {
  recording_ == nullptr ? dispatch(turn, nullptr) : run_recorded(turn);
}

void Runner::dispatch(const Turn& turn, RanAction* ran) {
  if (turn.action.microbatch > 0) check_counts_once();
  switch (turn.action.kind) {
    case Action::forward:
      return forward(turn, ran);
    case Action::backward:
    case Action::backward_input:
      check_counts_once();
      return backward(turn, ran);
    case Action::backward_weight:
      return backward_weight(turn);
    case Action::send_forward:
    case Action::send_backward:
      return send(turn);
    case Action::receive_forward:
    case Action::receive_backward:
      return receive(turn);
    case Action::unshard:
    case Action::reshard:
    case Action::reduce_gradients:
      return guide(turn);
  }
}

// Actions are in the order in which they begin, also if the second of an overlapped pair ends first.
void Runner::run_recorded(const Turn& turn) {
  std::vector<RanAction>& actions = recording_->actions;
  const size_t place = actions.size();
  RanAction& first = actions.emplace_back();
  first.action = turn.action;
  first.call = call_;
  first.thread = std::this_thread::get_id();
  first.begin = first.ready = RanAction::Clock::now();
  first.first_moment = first.ready_moment = record_moment();
  RanAction ran = first;  // the vector grows
  dispatch(turn, &ran);
  ran.end = RanAction::Clock::now();
  ran.last_moment = record_moment();
  ran.overlapped = overlap_ != nullptr && overlap_->is_running();
  if (ran.overlapped) ran.away = overlap_->away() - ran.away;
  actions[place] = ran;
}

// Before an overlapped action waits for what another rank sends to it, the other one runs.
void Runner::await_inputs() {
  if (overlap_ != nullptr) overlap_->hand_over();
}

void Runner::note_ready(RanAction* ran) const {
  if (ran == nullptr) return;
  ran->ready = RanAction::Clock::now();
  ran->ready_moment = record_moment();
  if (overlap_ != nullptr && overlap_->is_running()) ran->away = overlap_->away();
}

// Whole parameters stay for the next call, although the schedule would free them at its end.
void Runner::guide(const Turn& turn) {
  ParallelStage& stage = *locals_[turn.local].stage;
  if (turn.action.kind == Action::unshard) return stage.unshard();
  if (turn.action.kind == Action::reshard && (!turn.last || last_call_)) return stage.reshard();
  if (turn.action.kind == Action::reduce_gradients && last_call_) return stage.reduce_gradients();
}

// Gradients are of the sum of losses times `scale`, alike for every microbatch, so one tensor serves all.
at::Tensor Runner::root_gradient(const at::Tensor& loss) {
  return at::full_like(loss.detach(), main_scale());
}

double Runner::main_scale() {
  const double scale = (*scale_)();
  return stages_.pipeline().config.gradients == GradientScale::by_microbatches ? scale / cut_.microbatches
                                                                               : scale;
}

// The gradient of an auxiliary loss.
double Runner::side_scale(LossDivisor divisor) {
  if (divisor == LossDivisor::label_tokens) return main_scale();
  if (divisor == LossDivisor::one) return 1;
  if (!*all_microbatches_)
    throw Error(ErrorCode::internal, "train",
                "an auxiliary loss is divided by microbatches, and their number "
                "is not given",
                "give Runner::train the number of all microbatches");
  return 1 / (*all_microbatches_)();
}

Tensors Runner::gradients_of(LocalStage& stage, MicrobatchState& state) {
  if (stage.last) return Tensors(state.roots.size(), root_);
  if (stage.after >= 0) return std::exchange(state.gradients, {});
  await_inputs();
  return wires_->take_backward(std::exchange(state.returning, {}), stage.index);
}

void Runner::walk_back(const std::vector<torch::autograd::Edge>& roots, const Tensors& gradients) {
  try {
    torch::autograd::Engine::get_default_engine().execute(roots, gradients, /*keep_graph=*/false,
                                                          /*create_graph=*/false, /*accumulate_grad=*/true);
  } catch (...) {
    parallel::blame_backward(stages_, roots);
    throw;
  }
}

void Runner::backward(const Turn& turn, RanAction* ran) {
  LocalStage& stage = locals_[turn.local];
  MicrobatchState& state = stage.microbatches[turn.action.microbatch];
  const bool whole = turn.action.kind == Action::backward;
  if (whole && turn.last && last_call_) stage.stage->expect_last_backward();
  if (!whole) state.weights->defer();
  const Tensors gradients = gradients_of(stage, state);
  note_ready(ran);
  if (!state.roots.empty()) walk_back(std::exchange(state.roots, {}), gradients);
  if (!stage.first) return_gradients(stage, state, turn.action.microbatch);
  if (!whole) return;
  state.batch = Batch();
  --alive_;
}

// The previous stage expects a gradient: a missing one is zero.
void Runner::return_gradients(LocalStage& stage, MicrobatchState& state, int microbatch) {
  Tensors gradients;
  for (at::Tensor& input : state.inputs) {
    if (!input.defined() || !input.requires_grad()) continue;
    at::Tensor gradient = std::exchange(input.mutable_grad(), at::Tensor());
    gradients.push_back(gradient.defined() ? std::move(gradient) : at::zeros_like(input.detach()));
  }
  state.inputs.clear();
  Tensors& there =
      stage.before < 0 ? state.input_gradients : locals_[stage.before].microbatches[microbatch].gradients;
  there = std::move(gradients);
}

void Runner::backward_weight(const Turn& turn) {
  LocalStage& stage = locals_[turn.local];
  MicrobatchState& state = stage.microbatches[turn.action.microbatch];
  if (turn.last && last_call_) stage.stage->expect_last_backward();
  state.weights->drain();
  state.batch = Batch();
  --alive_;
}

// The opening of a call; run again with other parameters if the last update does not hold.
void Runner::open_in_doubt(const Batch& batch) {
  const size_t recorded = recording_ == nullptr ? 0 : recording_->actions.size();
  run_turns(0, program_->opening.turns);
  check_counts_once();
  if (doubt_->holds()) return;
  take_back();
  if (recording_ != nullptr)
    recording_->actions.erase(recording_->actions.begin() + static_cast<std::ptrdiff_t>(recorded),
                              recording_->actions.end());
  doubt_->amend();
  open(batch);
  run_turns(0, program_->opening.turns);
}

// Every rank does this. What others have sent in their openings is received, and all of it is forgotten.
void Runner::take_back() {
  for (const Turn& turn : program_->opening.left) receive(turn);
  for (LocalStage& stage : locals_)
    for (MicrobatchState& state : stage.microbatches) {
      for (const auto& work : state.arriving.works) work->wait();
      state = MicrobatchState();
    }
  if (wires_) wires_->settle();
  for (const LocalStage& stage : locals_) stage.stage->restart_step();
  alive_ = 0;
  sum_.zero_();
  root_.reset();
  begin_sides();
}

}  // namespace heddle::train

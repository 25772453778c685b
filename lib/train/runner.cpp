// The calls of a schedule, the forward, and transfers.
#include "lib/train/runner.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/schedule/microbatches.h"
#include "heddle/base/error.h"
#include "heddle/mesh/call.h"
#include "heddle/schedule/simulate.h"
#include "lib/train/optimizer/on_device.h"

namespace heddle::train {
namespace {

int place_of(const std::vector<int>& indices, int stage) {
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
    one.before = place_of(indices, one.index - 1);
    one.after = place_of(indices, one.index + 1);
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
                         const std::function<void()>& agreed) {
  agreed_ = agreed ? &agreed : nullptr;
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

at::Tensor Runner::evaluate(std::span<const Batch> batches, const std::function<void()>& agreed) {
  at::NoGradGuard no_gradients;
  agreed_ = agreed ? &agreed : nullptr;
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
    if (i > 0) agree();
    open(batches[i]);
    size_t done = 0;
    if (doubt_ != nullptr && i == 0) {
      open_in_doubt(batches[i]);
      done = program_->opening.turns;
    }
    go(done, program_->turns.size());
  }
  if (wires_) wires_->settle();
  return std::move(sum_);
}

void Runner::agree() {
  if (agreed_ != nullptr) (*std::exchange(agreed_, nullptr))();
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
  Tensors outputs = stage.stage->forward(state.inputs, state.batch);
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

}  // namespace heddle::train

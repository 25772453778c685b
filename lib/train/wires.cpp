// Transfers between stages: headers, casts to the dtype of the wire, and works kept until they end.
#include "lib/train/wires.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>
#include <utility>

#include "heddle/base/error.h"

namespace heddle::train {
namespace {

constexpr size_t kKnownShapes = 64;
constexpr size_t kSendsInFlight = 8;  // transfers that may wait for their receivers before a sender does

// A header: the number of tensors, then of each its dtype, whether it is defined, whether its gradient comes
// back, the number of its dims and their sizes.
std::vector<int64_t> written(const Pieces& pieces) {
  std::vector<int64_t> words = {static_cast<int64_t>(pieces.size())};
  for (const Piece& piece : pieces) {
    words.insert(words.end(), {static_cast<int64_t>(piece.dtype), piece.defined, piece.gradient,
                               static_cast<int64_t>(piece.sizes.size())});
    words.insert(words.end(), piece.sizes.begin(), piece.sizes.end());
  }
  return words;
}

Pieces read(const int64_t* word) {
  Pieces pieces(*word++);
  for (Piece& piece : pieces) {
    piece.dtype = static_cast<at::ScalarType>(word[0]);
    piece.defined = word[1] != 0;
    piece.gradient = word[2] != 0;
    piece.sizes.assign(word + 4, word + 4 + word[3]);
    word += 4 + word[3];
  }
  return pieces;
}

at::Tensor words_tensor(size_t count) {
  return at::empty({static_cast<int64_t>(count)}, at::kLong);
}

Pieces pieces_of(const Tensors& tensors) {
  Pieces pieces;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined())
      pieces.push_back({tensor.scalar_type(), tensor.sizes().vec(), true, tensor.requires_grad()});
    else
      pieces.push_back({at::kFloat, {}, false, false});
  }
  return pieces;
}

Tensors empty_like(const Pieces& pieces, c10::Device device) {
  Tensors tensors;
  for (const Piece& piece : pieces)
    tensors.push_back(!piece.defined ? at::Tensor()
                                     : at::empty(piece.sizes, at::TensorOptions(piece.dtype).device(device))
                                           .set_requires_grad(piece.gradient));
  return tensors;
}

bool is_like(const Piece& piece, const at::Tensor& tensor) {
  if (!piece.defined || !tensor.defined()) return piece.defined == tensor.defined();
  return tensor.scalar_type() == piece.dtype && tensor.sizes() == at::IntArrayRef(piece.sizes) &&
         tensor.requires_grad() == piece.gradient;
}

}  // namespace

Wires::Wires(Communicator* ranks, int stages, std::optional<at::ScalarType> wire, Buffers buffers,
             c10::Device device, Elsewhere elsewhere)
    : ranks_(ranks),
      stages_(stages),
      wire_(wire),
      buffers_(std::move(buffers)),
      device_(device),
      elsewhere_(std::move(elsewhere)) {}

void Wires::choose_shape(const std::vector<int64_t>& key) {
  if (shape_ != nullptr && shape_->key == key) return;
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& k) { return k.key == key; });
  if (found != known_.end()) return void(shape_ = &*found);
  if (known_.size() == kKnownShapes) known_.pop_front();
  known_.push_back({key, std::vector<std::optional<Pieces>>(stages_)});
  shape_ = &known_.back();
}

at::ScalarType Wires::on_wire(at::ScalarType dtype) const {
  return wire_ && at::isFloatingType(dtype) ? *wire_ : dtype;
}

void Wires::release() {
  while (!sent_.empty() && (sent_.size() > kSendsInFlight || sent_.front().work->done())) {
    sent_.front().work->wait();
    sent_.pop_front();
  }
}

void Wires::send(at::Tensor tensor, int peer, int tag) {
  at::Tensor flat = tensor.to(on_wire(tensor.scalar_type())).contiguous();
  auto work = ranks_->send(flat, peer, tag);
  sent_.push_back({std::move(work), std::move(flat)});
}

void Wires::send_header(const Pieces& pieces, int edge, int peer) {
  const std::vector<int64_t> words = written(pieces);
  const at::Tensor count = words_tensor(1), body = words_tensor(words.size());
  *count.mutable_data_ptr<int64_t>() = static_cast<int64_t>(words.size());
  std::copy(words.begin(), words.end(), body.mutable_data_ptr<int64_t>());
  for (const at::Tensor& part : {count, body}) sent_.push_back({ranks_->send(part, peer, edge), part});
}

// The stages between the last edge that is known and this one are run: a rank knows what it sent itself.
Pieces Wires::header_from_elsewhere(int edge, int peer) {
  int stage = edge;
  while (stage > 0 && !pieces(stage - 1)) --stage;
  for (; stage <= edge; ++stage)
    pieces(stage) =
        pieces_of(elsewhere_(stage, stage == 0 ? Tensors() : empty_like(*pieces(stage - 1), device_)));
  const Pieces known = *pieces(edge);
  for (const size_t count : {size_t{1}, written(known).size()})
    ranks_->receive(words_tensor(count), peer, edge)->wait();
  return known;
}

Pieces Wires::receive_header(int edge, int peer) {
  if (elsewhere_) return header_from_elsewhere(edge, peer);
  const at::Tensor count = words_tensor(1);
  ranks_->receive(count, peer, edge)->wait();
  if (*count.const_data_ptr<int64_t>() == 0)
    throw Error(ErrorCode::internal, "train",
                "no header came from stage " + std::to_string(edge) + ": this world is dry",
                "take steps in a world of heddle::DryRank, on meta tensors");
  const at::Tensor body = words_tensor(static_cast<size_t>(*count.const_data_ptr<int64_t>()));
  ranks_->receive(body, peer, edge)->wait();
  return read(body.const_data_ptr<int64_t>());
}

void Wires::send_forward(Tensors tensors, int edge, int peer, int tag) {
  release();
  std::optional<Pieces>& known = pieces(edge);
  if (!known) {
    known = pieces_of(tensors);
    send_header(*known, edge, peer);
  } else if (!std::equal(known->begin(), known->end(), tensors.begin(), tensors.end(), is_like)) {
    throw Error(ErrorCode::internal, "train",
                "stage " + std::to_string(edge) +
                    " returns tensors of other shapes or dtypes than before for a batch of one shape",
                "what flows between stages may depend on the shape of the batch alone");
  }
  at::NoGradGuard no_gradients;
  for (at::Tensor& tensor : tensors)
    if (tensor.defined()) send(tensor.detach(), peer, tag);
}

void Wires::send_backward(Tensors gradients, int peer, int tag) {
  release();
  at::NoGradGuard no_gradients;
  for (at::Tensor& gradient : gradients) send(std::move(gradient), peer, tag);
}

void Wires::add(Arriving& arriving, const Piece& piece, int peer, int tag) {
  arriving.tensors.push_back(buffers_.take(piece.sizes, on_wire(piece.dtype), device_));
  arriving.works.push_back(ranks_->receive(arriving.tensors.back(), peer, tag));
}

Arriving Wires::receive_forward(int edge, int peer, int tag) {
  if (!pieces(edge)) pieces(edge) = receive_header(edge, peer);
  Arriving arriving;
  for (const Piece& piece : *pieces(edge))
    if (piece.defined) add(arriving, piece, peer, tag);
  return arriving;
}

Arriving Wires::receive_backward(int edge, int peer, int tag) {
  Arriving arriving;
  for (const Piece& piece : *pieces(edge))
    if (piece.gradient) add(arriving, piece, peer, tag);
  return arriving;
}

Tensors Wires::take_forward(Arriving arriving, int edge) {
  for (auto& work : arriving.works) work->wait();
  Tensors tensors;
  size_t next = 0;
  for (const Piece& piece : *pieces(edge)) {
    if (!piece.defined) {
      tensors.emplace_back();
      continue;
    }
    at::Tensor tensor = std::move(arriving.tensors[next++]).to(piece.dtype);
    tensors.push_back(tensor.set_requires_grad(piece.gradient));
  }
  return tensors;
}

Tensors Wires::take_backward(Arriving arriving, int edge) {
  for (auto& work : arriving.works) work->wait();
  size_t next = 0;
  for (const Piece& piece : *pieces(edge)) {
    if (!piece.gradient) continue;
    arriving.tensors[next] = arriving.tensors[next].to(piece.dtype);
    ++next;
  }
  return std::move(arriving.tensors);
}

void Wires::settle() {
  for (Sent& sent : sent_) sent.work->wait();
  sent_.clear();
}

namespace {

bool is_free(const at::Tensor& buffer) {
  return buffer.storage().use_count() == 1;
}

}  // namespace

at::Tensor Buffers::take(at::IntArrayRef sizes, at::ScalarType dtype, at::Device device) {
  const auto fits = [&](const at::Tensor& buffer) {
    return buffer.scalar_type() == dtype && buffer.sizes() == sizes && buffer.device() == device &&
           is_free(buffer);
  };
  if (const auto found = std::find_if(kept_.begin(), kept_.end(), fits); found != kept_.end())
    return found->variable_data();
  const at::Tensor fresh = at::empty(sizes, at::TensorOptions(dtype).device(device));
  if (most_ == 0) return fresh;
  if (kept_.size() >= most_) {  // one of another shape makes room
    const auto unused = std::find_if(kept_.begin(), kept_.end(), is_free);
    if (unused == kept_.end()) return fresh;
    kept_.erase(unused);
  }
  kept_.push_back(fresh);
  return fresh.variable_data();
}

}  // namespace heddle::train

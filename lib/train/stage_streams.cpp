// LibTorch's own streams and events, of whatever device the parameters are on.
#include "lib/train/stage_streams.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>

namespace heddle::train {
namespace {

void order(const c10::Stream& before, const c10::Stream& after) {
  c10::Event done(before.device_type());
  done.record(before);
  done.block(after);
}

}  // namespace

StageStreams::StageStreams(c10::Device device, size_t stages) : device_(device) {
  if (device.is_cpu() || device.is_meta() || stages < 2) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  for (size_t i = 0; i < stages; ++i) streams_.push_back(guard.getStreamFromGlobalPool(device));
}

c10::OptionalStreamGuard StageStreams::scope(size_t stage) const {
  return c10::OptionalStreamGuard(streams_.empty() ? std::nullopt : std::make_optional(streams_[stage]));
}

// An allocator knows only the stream on which it gave memory out.
void StageStreams::hand_over(size_t from, size_t to, std::span<const at::Tensor> tensors) const {
  if (streams_.empty()) return;
  order(streams_[from], streams_[to]);
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined()) tensor.record_stream(streams_[to]);
}

void StageStreams::fork() const {
  if (streams_.empty()) return;
  const c10::Stream now = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  for (const c10::Stream& stream : streams_) order(now, stream);
}

void StageStreams::join() const {
  if (streams_.empty()) return;
  const c10::Stream now = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  for (const c10::Stream& stream : streams_) order(stream, now);
}

}  // namespace heddle::train

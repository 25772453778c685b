// Each call, handed to run().
#include "core/mesh/wrapped.h"

#include "heddle/base/error.h"
#include "heddle/mesh/call.h"

namespace heddle::mesh {

std::unique_ptr<Work> WrappedCommunicator::all_gather(at::Tensor out, at::Tensor in) {
  return run({"all_gather", out}, [&] { return inner_->all_gather(out, in); });
}

std::unique_ptr<Work> WrappedCommunicator::reduce_scatter(at::Tensor out, at::Tensor in, Reduce reduce) {
  return run({"reduce_scatter", in}, [&] { return inner_->reduce_scatter(out, in, reduce); });
}

std::unique_ptr<Work> WrappedCommunicator::all_reduce(at::Tensor inout, Reduce reduce) {
  return run({"all_reduce", inout}, [&] { return inner_->all_reduce(inout, reduce); });
}

std::unique_ptr<Work> WrappedCommunicator::all_to_all(at::Tensor out, at::Tensor in,
                                                      std::span<const int64_t> out_rows,
                                                      std::span<const int64_t> in_rows) {
  return run({"all_to_all", in}, [&] { return inner_->all_to_all(out, in, out_rows, in_rows); });
}

std::unique_ptr<Work> WrappedCommunicator::broadcast(at::Tensor inout, int root) {
  return run({"broadcast", inout}, [&] { return inner_->broadcast(inout, root); });
}

std::unique_ptr<Work> WrappedCommunicator::send(at::Tensor tensor, int peer, int tag) {
  return run({"send", tensor, peer, tag}, [&] { return inner_->send(tensor, peer, tag); });
}

std::unique_ptr<Work> WrappedCommunicator::receive(at::Tensor tensor, int peer, int tag) {
  return run({"receive", tensor, peer, tag}, [&] { return inner_->receive(tensor, peer, tag); });
}

std::unique_ptr<Work> WrappedCommunicator::gather_each(std::span<const GatherInto> gathers) {
  return run({"all_gather", gathers.front().out}, [&] { return mesh::gather_each(*inner_, gathers); });
}

const Communicator& unwrapped(const Communicator& group) {
  const Communicator* inner = &group;
  while (const auto* wrapped = dynamic_cast<const WrappedCommunicator*>(inner)) inner = &wrapped->inner();
  return *inner;
}

ConnectsAhead::~ConnectsAhead() = default;
GathersEach::~GathersEach() = default;

bool gathers_each(const Communicator& group) {
  return dynamic_cast<const GathersEach*>(&unwrapped(group)) != nullptr;
}

std::unique_ptr<Work> gather_each(Communicator& group, std::span<const GatherInto> gathers) {
  if (auto* wrapped = dynamic_cast<WrappedCommunicator*>(&group)) return wrapped->gather_each(gathers);
  if (auto* each = dynamic_cast<GathersEach*>(&group)) return each->gather_each(gathers);
  throw Error(ErrorCode::internal, "mesh",
              "the group " + group.name() + " does not gather several tensors at once",
              "ask gathers_each() first");
}

void connect(Communicator& group, std::span<const TransferPair> transfers) {
  Communicator* inner = &group;
  while (auto* wrapped = dynamic_cast<WrappedCommunicator*>(inner)) inner = &wrapped->inner();
  if (auto* ahead = dynamic_cast<ConnectsAhead*>(inner)) ahead->connect(transfers);
}

}  // namespace heddle::mesh

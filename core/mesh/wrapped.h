// A communicator that wraps another one.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "heddle/mesh/call.h"
#include "heddle/mesh/communicator.h"

namespace heddle::mesh {

struct GroupCall {
  const char* name;          // "all_gather"
  const at::Tensor& tensor;  // the larger one
  int peer = -1, tag = 0;    // of a transfer
};

// Exported for tests.
class HEDDLE_API WrappedCommunicator : public Communicator {
 public:
  explicit WrappedCommunicator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  const Communicator& inner() const { return *inner_; }
  Communicator& inner() { return *inner_; }
  int rank() const final { return inner_->rank(); }
  int size() const final { return inner_->size(); }
  const std::string& name() const final { return inner_->name(); }
  std::unique_ptr<Work> all_gather(at::Tensor out, at::Tensor in) final;
  std::unique_ptr<Work> reduce_scatter(at::Tensor out, at::Tensor in, Reduce reduce) final;
  std::unique_ptr<Work> all_reduce(at::Tensor inout, Reduce reduce) final;
  std::unique_ptr<Work> all_to_all(at::Tensor out, at::Tensor in, std::span<const int64_t> out_rows,
                                   std::span<const int64_t> in_rows) final;
  std::unique_ptr<Work> broadcast(at::Tensor inout, int root) final;
  std::unique_ptr<Work> send(at::Tensor tensor, int peer, int tag) final;
  std::unique_ptr<Work> receive(at::Tensor tensor, int peer, int tag) final;
  std::unique_ptr<Work> gather_each(std::span<const GatherInto> gathers);

 protected:
  using Post = c10::function_ref<std::unique_ptr<Work>()>;
  // Every call of the above; `post` makes the call of the inner one.
  virtual std::unique_ptr<Work> run(const GroupCall& call, Post post) = 0;

 private:
  std::unique_ptr<Communicator> inner_;
};

// The communicator inside all wrappings; the same without one.
const Communicator& unwrapped(const Communicator& group);

}  // namespace heddle::mesh

// Gradients of one group: packed from the leaves into a reduce buffer, and unpacked from the sum to the
// shards.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "group.h"

namespace heddle::fsdp2 {

// Gradients of several ranks: a rank's part of the reduce buffer holds its chunks of all trainable
// parameters, then one flag per parameter, the number of ranks that had a gradient. A parameter that no rank
// used gets no gradient, as on one rank. Gradients of one rank, or of ranks with whole parameters: autograd
// adds into the sum itself (Megatron's main_grad). Sums of whole parameters are reduced over the ranks once
// per step.
class Gradients : public sharding::Gradients {
 public:
  Gradients(Group& group, const Place& place);

  Group& group() const { return *group_; }
  at::ScalarType dtype() const { return dtype_; }
  int64_t part() const { return part_; }  // elements per rank in the reduce buffer
  bool moves() const { return moves_; }   // gradients go from a device to host memory

  void begin_step() override;
  void keep() override;  // accumulates gradients in the reduce dtype until the last microbatch
  std::unique_ptr<Work> reduce() override;
  void reduced() override;
  std::unique_ptr<Work> reduce_replicas() override;
  void place(std::span<const char> used)
      override;  // gradients that go to host memory: wait for the device afterwards

 private:
  struct Column {  // one trainable parameter
    Parameter* parameter;
    int64_t offset;        // in the part
    at::Tensor gradient;   // of the shard: a view of sum_, or of its copy in the storage dtype
    at::Tensor adds;       // one rank: the tensor that autograd adds into
    uint32_t version = 0;  // of `adds` at the start of the step
    bool had = false;      // this rank had a gradient
    bool had_here() const { return adds._version() != version; }  // if autograd adds into the sum
  };
  void pack(const at::Tensor& buffer);  // [ranks, part]; moves the gradients from the leaves
  void pack_columns(char* buffer);      // on the CPU
  void pack_column(const Column& column, char* buffer, const at::Tensor& gradient) const;
  bool pack_at_once(
      const at::Tensor& buffer);  // one kernel on a device; false if it does not support these gradients
  void pack_columns_on_device(const at::Tensor& buffer);
  void pack_column_on_device(const Column& column, const at::Tensor& buffer,
                             const at::Tensor& gradient) const;
  bool used(const Column& column, int64_t index) const;

  Group* group_;
  std::shared_ptr<ReduceBuffers> buffers_;
  bool whole_;              // several ranks hold whole parameters
  Communicator* replicas_;  // group that reduces once per step
  int ranks_;
  at::ScalarType dtype_;
  bool direct_ = false;  // autograd's gradients are final: one rank, one dtype, one device
  bool moves_ = false;
  size_t element_;                   // bytes of an element of dtype_
  std::array<char, 16> one_{};       // 1 in dtype_
  int64_t elements_ = 0, part_ = 0;  // without and with the flags, which end at a multiple of kAlign
  std::vector<Column> columns_;
  at::Tensor sum_;       // [part]: this rank's part, summed over ranks and microbatches
  bool summed_ = false;  // sum_ holds a sum
  std::array<at::Tensor, 2> inputs_, outputs_;  // one per turn
  at::Tensor flags_, gaps_;  // for pack_at_once(): ones [ranks, part - elements], and zeros
  at::Tensor adds_;          // the sum in flight is added to earlier sums
  at::Tensor stored_;        // the sum in the shards' dtype and memory, if they differ
};

// Waits until all work of this device is done.
void wait_for(c10::Device device);

}  // namespace heddle::fsdp2

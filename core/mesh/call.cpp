// The checks of a collective, and the collectives themselves when all ranks share one memory.
#include "heddle/mesh/call.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/mesh/sums.h"
#include "heddle/base/error.h"

namespace heddle::mesh {
namespace {

[[noreturn]] void refuse(const Call& call, const std::string& axis, const std::string& text) {
  throw Error(ErrorCode::internal, "mesh",
              std::string(name_of(call.operation)) + " on " + axis + ": " + text);
}

std::string elements(const at::Tensor& tensor) {
  return std::to_string(tensor.numel()) + " elements";
}

void check_rows(const Call& call, const at::Tensor& tensor, const std::vector<int64_t>& rows, int size,
                const std::string& axis, const std::string& which) {
  const int64_t sum = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  const bool negative = !rows.empty() && *std::min_element(rows.begin(), rows.end()) < 0;
  if (static_cast<int>(rows.size()) == size && tensor.dim() > 0 && sum == tensor.size(0) && !negative) return;
  refuse(call, axis,
         which + " names " + std::to_string(rows.size()) + " row counts with sum " + std::to_string(sum) +
             "; " + std::to_string(size) + " ranks and " +
             std::to_string(tensor.dim() > 0 ? tensor.size(0) : 0) + " rows are there");
}

void check_sizes(const Call& call, int size, const std::string& axis) {
  const at::Tensor &out = call.out, &in = call.in;
  if (call.operation == Operation::all_gather && out.numel() != in.numel() * size) {
    refuse(call, axis,
           "out has " + elements(out) + ", " + std::to_string(size) + " times " + std::to_string(in.numel()) +
               " are gathered");
  }
  if (call.operation == Operation::reduce_scatter && in.numel() != out.numel() * size) {
    refuse(call, axis,
           "in has " + elements(in) + ", " + std::to_string(size) + " times " + std::to_string(out.numel()) +
               " are needed");
  }
  if (call.operation == Operation::all_to_all) {
    check_rows(call, out, call.out_rows, size, axis, "out_rows");
    check_rows(call, in, call.in_rows, size, axis, "in_rows");
  }
}

char* bytes(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.mutable_data_ptr());
}
const char* const_bytes(const at::Tensor& tensor) {
  return static_cast<const char*>(tensor.const_data_ptr());
}

void copy(char* to, const char* from, size_t count) {
  if (count > 0 && to != from) std::memcpy(to, from, count);
}

size_t row_bytes(const at::Tensor& tensor) {
  return static_cast<size_t>(c10::multiply_integers(tensor.sizes().slice(1))) * tensor.element_size();
}

void gather_all(std::span<const Call> calls) {
  for (const Call& to : calls) {
    for (size_t rank = 0; rank < calls.size(); ++rank) {
      const at::Tensor& in = calls[rank].in;
      copy(bytes(to.out) + rank * in.nbytes(), const_bytes(in), in.nbytes());
    }
  }
}

void scatter_sums(std::span<const Call> calls) {
  std::vector<const void*> parts(calls.size());
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    const at::Tensor& out = calls[rank].out;
    for (size_t from = 0; from < calls.size(); ++from) {
      parts[from] = const_bytes(calls[from].in) + rank * out.nbytes();
    }
    combine(bytes(out), parts, out.numel(), out.scalar_type(), calls[rank].reduce);
  }
}

void reduce_all(std::span<const Call> calls) {
  std::vector<const void*> parts;
  for (const Call& call : calls) parts.push_back(const_bytes(call.in));
  const at::Tensor& first = calls[0].out;
  combine(bytes(first), parts, first.numel(), first.scalar_type(), calls[0].reduce);
  for (const Call& call : calls.subspan(1)) copy(bytes(call.out), const_bytes(first), first.nbytes());
}

void exchange_rows(std::span<const Call> calls) {
  for (size_t from = 0; from < calls.size(); ++from) {
    const Call& source = calls[from];
    const char* next = const_bytes(source.in);
    for (size_t to = 0; to < calls.size(); ++to) {
      const Call& target = calls[to];
      const size_t row = row_bytes(target.out);
      const int64_t before =
          std::accumulate(target.out_rows.begin(), target.out_rows.begin() + from, int64_t{0});
      const size_t count = static_cast<size_t>(source.in_rows[to]) * row_bytes(source.in);
      if (count != static_cast<size_t>(target.out_rows[from]) * row) {
        refuse(source, "the group",
               "rank " + std::to_string(from) + " sends " + std::to_string(count) + " bytes where rank " +
                   std::to_string(to) + " receives " + std::to_string(target.out_rows[from] * row));
      }
      copy(bytes(target.out) + before * row, next, count);
      next += count;
    }
  }
}

void spread(std::span<const Call> calls) {
  const at::Tensor& root = calls[calls[0].peer].in;
  for (const Call& call : calls) copy(bytes(call.out), const_bytes(root), root.nbytes());
}

}  // namespace

const char* name_of(Operation operation) {
  constexpr const char* kNames[] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all",
                                    "broadcast",  "send",           "receive"};
  return kNames[static_cast<int>(operation)];
}

std::string Call::describe() const {
  const at::Tensor& shown = in.defined() ? in : out;
  std::string text = name_of(operation);
  if (reduce == Reduce::max) text += " (max)";
  if (reduce == Reduce::average) text += " (average)";
  if (operation == Operation::broadcast) text += " from " + std::to_string(peer);
  if (operation == Operation::send) text += " to " + std::to_string(peer);
  if (operation == Operation::receive) text += " from " + std::to_string(peer);
  if (operation == Operation::all_to_all) return text + " of " + c10::toString(shown.scalar_type());
  return text + " of " + std::to_string(shown.numel()) + " " + c10::toString(shown.scalar_type());
}

void check(const Call& call, int rank, int size, const std::string& axis) {
  for (const at::Tensor& tensor : {call.out, call.in}) {
    if (tensor.defined() && !tensor.is_contiguous()) refuse(call, axis, "a tensor is not contiguous");
  }
  if (call.out.defined() && call.in.defined() && call.out.scalar_type() != call.in.scalar_type()) {
    refuse(call, axis,
           std::string("out is ") + c10::toString(call.out.scalar_type()) + " and in is " +
               c10::toString(call.in.scalar_type()));
  }
  if (call.peer < 0 || call.peer >= size) {
    refuse(call, axis, "rank " + std::to_string(call.peer) + " is not in 0.." + std::to_string(size - 1));
  }
  const bool direct = call.operation == Operation::send || call.operation == Operation::receive;
  if (direct && call.peer == rank) refuse(call, axis, "the peer is this rank itself");
  if (direct && call.tag < 0) refuse(call, axis, "tag " + std::to_string(call.tag) + " is negative");
  check_sizes(call, size, axis);
}

void carry_out(std::span<const Call> calls) {
  switch (calls[0].operation) {
    case Operation::all_gather:
      return gather_all(calls);
    case Operation::reduce_scatter:
      return scatter_sums(calls);
    case Operation::all_reduce:
      return reduce_all(calls);
    case Operation::all_to_all:
      return exchange_rows(calls);
    case Operation::broadcast:
      return spread(calls);
    default:
      throw Error(ErrorCode::internal, "mesh", "a send or receive is not carried out as a collective");
  }
}

CheckedCommunicator::~CheckedCommunicator() = default;
DoneWork::~DoneWork() = default;

void check_cpu(const Call& call, const std::string& axis) {
  for (const at::Tensor& tensor : {call.out, call.in}) {
    if (tensor.defined() && !tensor.is_cpu()) {
      refuse(call, axis,
             "a tensor is on " + tensor.device().str() + "; this communicator moves the CPU's memory");
    }
  }
}

std::unique_ptr<Work> CheckedCommunicator::checked(Call call) {
  check(call, rank_, size_, name_);
  return post(std::move(call));
}

std::unique_ptr<Work> CheckedCommunicator::all_gather(at::Tensor out, at::Tensor in) {
  return checked({.operation = Operation::all_gather, .out = std::move(out), .in = std::move(in)});
}

std::unique_ptr<Work> CheckedCommunicator::reduce_scatter(at::Tensor out, at::Tensor in, Reduce reduce) {
  return checked(
      {.operation = Operation::reduce_scatter, .out = std::move(out), .in = std::move(in), .reduce = reduce});
}

std::unique_ptr<Work> CheckedCommunicator::all_reduce(at::Tensor inout, Reduce reduce) {
  return checked({.operation = Operation::all_reduce, .out = inout, .in = inout, .reduce = reduce});
}

std::unique_ptr<Work> CheckedCommunicator::all_to_all(at::Tensor out, at::Tensor in,
                                                      std::span<const int64_t> out_rows,
                                                      std::span<const int64_t> in_rows) {
  return checked({.operation = Operation::all_to_all,
                  .out = std::move(out),
                  .in = std::move(in),
                  .out_rows = {out_rows.begin(), out_rows.end()},
                  .in_rows = {in_rows.begin(), in_rows.end()}});
}

std::unique_ptr<Work> CheckedCommunicator::broadcast(at::Tensor inout, int root) {
  return checked({.operation = Operation::broadcast, .out = inout, .in = inout, .peer = root});
}

std::unique_ptr<Work> CheckedCommunicator::send(at::Tensor tensor, int peer, int tag) {
  return checked({.operation = Operation::send, .in = std::move(tensor), .peer = peer, .tag = tag});
}

std::unique_ptr<Work> CheckedCommunicator::receive(at::Tensor tensor, int peer, int tag) {
  return checked({.operation = Operation::receive, .out = std::move(tensor), .peer = peer, .tag = tag});
}

}  // namespace heddle::mesh

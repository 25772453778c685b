// Agreement to stop: a maximum over one number per rank.
#include "lib/run/loop/stop.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace heddle {

StopAgreement::StopAgreement(Rendezvous& rendezvous, const StopRequest& request) : stop_request_(request) {
  number_ = at::zeros({1}, at::kInt);
  if (rendezvous.world_size() == 1) return;
  std::vector<int> all(rendezvous.world_size());
  std::iota(all.begin(), all.end(), 0);
  world_ = rendezvous.group("world", all);
}

void StopAgreement::begin(int own) {
  *number_.mutable_data_ptr<int>() = std::max<int>(stop_request_.signal, own);
  if (world_) asked_ = world_->all_reduce(number_, Reduce::max);
}

int StopAgreement::end() {
  if (asked_) asked_->wait();
  asked_.reset();
  return *number_.const_data_ptr<int>();
}

int StopAgreement::now(int own) {
  begin(own);
  return end();
}

}  // namespace heddle

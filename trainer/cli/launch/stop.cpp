// Exit statuses and repeated signals.
#include "trainer/cli/launch/stop.h"

#include <signal.h>

#include <algorithm>
#include <iterator>

namespace heddle::launch {

int known(int status) {
  constexpr int kKnown[] = {0, 2, 130, 143};
  return std::find(std::begin(kKnown), std::end(kKnown), status) != std::end(kKnown) ? status : 1;
}

int Stop::status_of(int signal) const {
  if (std::find(preemptions.begin(), preemptions.end(), signal) != preemptions.end()) return 0;
  return signal == SIGTERM ? 143 : 130;
}

int worse(int one, int other) {
  const auto weight = [](int status) { return status == 2 ? 3 : status == 1 ? 2 : status != 0 ? 1 : 0; };
  return weight(other) > weight(one) ? other : one;
}

bool Repeats::is_another() {
  const auto now = std::chrono::steady_clock::now();
  if (first_ == std::chrono::steady_clock::time_point()) first_ = now;
  return now - first_ > std::chrono::milliseconds(500);
}

}  // namespace heddle::launch

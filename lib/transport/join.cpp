// The rendezvous of processes: the store, the exchange of texts, and groups over shared memory or Gloo.
#include "heddle/transport/join.h"

#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "heddle/mesh/call.h"
#include "lib/transport/gloo/gloo_wire.h"
#include "lib/transport/gloo/sparse_wire.h"
#include "lib/transport/gloo/store_rendezvous.h"
#include "lib/transport/gloo/wire_collectives.h"
#include "lib/transport/gloo/wire_communicator.h"
#include "lib/transport/liveness/watch.h"
#include "lib/transport/meeting/meeting.h"
#include "lib/transport/shm/shm_communicator.h"
#include "lib/transport/shm/shm_machine.h"

namespace heddle::mesh {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;
// Between two checks of the store, for each kRanksAPause ranks: it serves all of them.
constexpr std::chrono::milliseconds kLeastPause{1}, kMostPause{20};
constexpr int kRanksAPause = 64;
constexpr int kRoundsToClose = 60;  // of the watch, 3 s: then a store that does not answer is given up
constexpr std::chrono::milliseconds kToRead{500};  // for all ranks, once one of them has the answer and fails
constexpr std::chrono::hours kGlooLimit{
    24};  // Gloo's own timeout is longer than heddle's, which ignores pauses

StorePtr scoped(const RankPlace& place, const StorePtr& store) {
  return c10::make_intrusive<c10d::PrefixStore>("heddle" + place.session, store);
}

// Other ranks are told of a wrong interface: they wait for this one.
std::string interface_for(Meeting& meeting) {
  try {
    return interface_of_environment();
  } catch (const Error& error) {
    throw meeting.refuse(error);
  }
}

// Every rank refuses the loopback interface before it uses the store again. Rank 0 ends after the others
// know, and its store with it.
StorePtr store_for(const std::string& interface, const Met& met, Meeting& meeting) {
  try {
    if (!met.host_names.empty()) refuse_loopback(interface);
  } catch (const Error& error) {
    throw meeting.refuse(error);
  }
  return met.store;
}

// names: of the hosts, by rank; empty if all ranks are on one machine.
std::string name_in(const std::vector<std::string>& names, int rank) {
  return names.empty() ? "" : names.at(static_cast<size_t>(rank));
}

class GlooRendezvous : public Rendezvous {
 public:
  GlooRendezvous(const RankPlace& place, std::shared_ptr<Meeting> meeting, GlooOptions options)
      : place_(place),
        options_(std::move(options)),
        meeting_(std::move(meeting)),
        interface_(interface_for(*meeting_)),
        met_(meeting_->join(options_.timeout, options_.log, options_.on_stopped)),
        root_(store_for(interface_, met_, *meeting_)),
        store_(scoped(place_, root_)),
        watch_(scoped(place_, root_->clone()),
               {.rank = place.rank,
                .world_size = place.world_size,
                .process = this_process(),
                .timeout = options_.timeout,
                .on_lost = options_.on_lost,
                .heartbeat = options_.heartbeat,
                .on_stopped = options_.on_stopped,
                .host_name = [names = met_.host_names](int rank) { return name_in(names, rank); },
                .address = met_.host_names.empty() ? "" : met_.address}) {
    watch_.interrupt(this, [store = met_.store, rounds = 0]() mutable {
      if (++rounds == kRoundsToClose) store->close();
    });
    meeting_->follow(watch_.gone_function(), watch_.stop_function());
    share();
    watch_.know_server();
  }
  ~GlooRendezvous() override {
    meeting_->follow({}, {});
    watch_.forget(this);
  }

  int rank() const override { return place_.rank; }
  int world_size() const override { return place_.world_size; }
  int local_rank() const override { return place_.local_rank; }
  int local_world_size() const override { return place_.local_world_size; }
  const Log& log() const override { return options_.log; }
  std::string host_name(int rank) const override { return name_in(met_.host_names, rank); }

  std::string hold_rendezvous(const std::string& key, const std::string& text,
                              const Answer& answer) override {
    const std::string waited = "the exchange of " + key;
    StoreRendezvous rendezvous(store_, "text/" + key + "/" + std::to_string(times(key)) + "/", rank(),
                               world_size());
    try {
      if (rank() == 0) return answered(rendezvous, waited, text, answer);
      rendezvous.give(text);
      wait_for([&] { return rendezvous.is_answered(); }, waited);
      return rendezvous.take();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw watch_.verdict({waited, {}, {}, Broken::How::failed, error.what()}, this_thread());
    }
  }

  std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) override {
    if (ranks.size() == 1) return std::make_unique<AloneCommunicator>(name);
    std::vector<int> members(ranks.begin(), ranks.end());
    const int place = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
    const std::string key = "group/" + list_ranks(members) + "/" + std::to_string(made_[members]++);
    auto over_gloo = [=, this] { return gloo_group(name, key, members, place); };
    const bool here = engine_ && std::all_of(members.begin(), members.end(),
                                             [&](int member) { return sharing_.contains(member); });
    if (!here) return over_gloo();
    auto instead = [=, this](const std::string& why) {
      if (!why.empty()) warn_of_gloo("the group " + name, why);
      return over_gloo();
    };
    return std::make_unique<ShmCommunicator>(ShmGroupPlace{name, key, members, place, instead}, *engine_);
  }

  void abandon(const std::string& why) override { watch_.abandon(why); }
  void leave() override { watch_.leave(); }

  std::chrono::milliseconds timeout() const override { return options_.timeout; }
  Error verdict(const Broken& broken) override { return watch_.verdict(broken); }
  void interrupt(const void* owner, std::function<void()> release) override {
    watch_.interrupt(owner, std::move(release));
  }
  void forget(const void* owner) override { watch_.forget(owner); }

 private:
  // How often a key was used before. Texts may be exchanged by several threads of a rank, each with its keys.
  int times(const std::string& key) {
    const std::lock_guard lock(exchanged_mutex_);
    return exchanged_[key]++;
  }

  void share() {
    auto machine = share_memory(options_.shared_memory, *this);
    if (!machine.why.empty()) warn_of_gloo("the ranks of this machine", machine.why);
    if (machine.arenas.empty()) return;
    for (const auto& [member, arena] : machine.arenas) sharing_.insert(member);
    engine_ = std::make_unique<ShmEngine>(
        ShmEngineOptions{std::move(machine.arenas), rank(), options_.timeout}, watch_);
  }

  void warn_of_gloo(const std::string& who, const std::string& why) {
    options_.log.warning("mesh", "shared memory is not available for " + who + " (" + why +
                                     "): they use Gloo, which is much slower");
  }

  std::unique_ptr<Communicator> gloo_group(const std::string& name, const std::string& key,
                                           const std::vector<int>& members, int place) {
    std::call_once(device_opened_, [this] { device_ = open_gloo_device(interface_, met_.address); });
    // The thread of the group connects, on its own connection to the store, whose calls block.
    auto connect = [=, root = root_, device = device_, at = place_]() -> std::unique_ptr<Wire> {
      const auto mesh = [=] {
        return connect_gloo(scoped(at, root->clone()), *device, {key, members, place, kGlooLimit});
      };
      if (members.size() <= kFewRanks) return mesh();
      const auto pair = [=](int peer) {
        const int low = std::min(place, peer), high = std::max(place, peer);
        const std::string name = key + "/" + std::to_string(low) + "-" + std::to_string(high);
        const std::vector<int> both = {members[low], members[high]};
        return connect_gloo(scoped(at, root->clone()), *device,
                            {name, both, place == low ? 0 : 1, kGlooLimit});
      };
      return std::make_unique<SparseWire>(place, pair, mesh);
    };
    auto communicator = std::make_unique<WireCommunicator>(name, place, members, options_.timeout, watch_);
    communicator->start(connect);
    return communicator;
  }

  // Rank 0 may end after its answer, and the store with it: the others read first.
  std::string answered(StoreRendezvous& rendezvous, const std::string& waited, const std::string& text,
                       const Answer& answer) {
    wait_for([&] { return rendezvous.is_complete(); }, waited, [&] { return rendezvous.absent(); });
    const std::string own = rendezvous.answer(answer(rendezvous.texts(text)));
    wait_for([&] { return rendezvous.is_read(); }, waited);
    rendezvous.clear();
    return own;
  }

  Watch::Thread this_thread() const {
    return std::this_thread::get_id() == own_ ? Watch::Thread::own : Watch::Thread::beside;
  }

  // absent: the ranks waited for, if known.
  void wait_for(
      const std::function<bool()>& ready, const std::string& waited,
      const std::function<std::vector<int>()>& absent = [] { return std::vector<int>{}; }) {
    const auto start = watch_.running_time();
    const int pace = std::max(1, rank() == 0 ? 1 : world_size() / kRanksAPause);
    // A rank is late when its own thread does not wait, regardless of other threads.
    const bool own = this_thread() == Watch::Thread::own;
    if (own) watch_.set_waiting(true);
    std::optional<std::chrono::milliseconds> lost_at;
    while (!ready()) {
      const auto elapsed = watch_.running_time() - start;
      if (watch_.lost() && !lost_at) lost_at = elapsed;
      // A rank may have failed with the answer to this exchange: then it is ready for this rank too.
      if (lost_at && elapsed - *lost_at >= kToRead)
        throw watch_.verdict({waited, {}, elapsed, Broken::How::failed, ""}, this_thread());
      if (elapsed >= options_.timeout)
        throw watch_.verdict({waited, {}, elapsed, Broken::How::timed_out, ""}, this_thread(), absent());
      std::this_thread::sleep_for(std::clamp(elapsed / 16, kLeastPause * pace, kMostPause * pace));
    }
    if (own) watch_.set_waiting(false);
  }

  const RankPlace place_;
  const GlooOptions options_;
  const std::shared_ptr<Meeting> meeting_;
  const std::string interface_;  // empty: the one of met_.address
  const Met met_;
  const StorePtr root_, store_;
  Watch watch_;
  std::set<int> sharing_;  // the ranks that share memory with this one, itself among them
  std::unique_ptr<ShmEngine> engine_;
  std::once_flag device_opened_;  // the shared memory's thread also makes groups over Gloo
  std::shared_ptr<GlooDevice> device_;
  const std::thread::id own_ = std::this_thread::get_id();  // the rank's own thread, which has joined
  std::mutex exchanged_mutex_;
  std::map<std::string, int> exchanged_;
  std::map<std::vector<int>, int> made_;
};

// A write to a lost rank must return an error: by default the signal ends the process silently, and Gloo and
// the store do not suppress it. A host's own handler is kept.
void survive_closed_connections() {
  struct sigaction now {};
  if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

std::unique_ptr<Rendezvous> join(const RankPlace& place, GlooOptions options,
                                 std::shared_ptr<Meeting> meeting) {
  if (place.world_size == 1) return std::make_unique<AloneRendezvous>(std::move(options.log));
  survive_closed_connections();
  if (!meeting) meeting = std::make_shared<Meeting>(place);
  return std::make_unique<GlooRendezvous>(place, std::move(meeting), std::move(options));
}

}  // namespace heddle::mesh

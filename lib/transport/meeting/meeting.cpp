// The thread that comes to the store, and what a rank says while it waits.
#include "lib/transport/meeting/meeting.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <sstream>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "core/mesh/packed.h"
#include "heddle/base/text.h"
#include "heddle/mesh/call.h"
#include "lib/transport/launch/loopback.h"
#include "lib/transport/launch/process.h"
#include "lib/transport/liveness/probe_socket.h"
#include "lib/transport/liveness/running_time.h"
#include "lib/transport/meeting/store_server.h"

namespace heddle::mesh {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Words = std::vector<std::string>;

constexpr seconds kToSpeak{3};        // before a line says for whom this rank waits
constexpr seconds kToSpeakAgain{60};  // if it still waits for the same ranks
constexpr seconds kForRefusal{10};    // until others know a refusal
constexpr seconds kForSignal{1}, kForAnswer{60};
constexpr seconds kForLoopback{10};  // until a loopback address counts as a mistake
constexpr seconds kForPort{5};       // until the port of an earlier run is free
constexpr milliseconds kToConnect{2000}, kLookSlice{250}, kFirstPause{20}, kLastPause{500};

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

// The numeric addresses of this machine's interfaces, but for loopback ones.
Words interface_addresses() {
  Words out;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return out;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    char host[NI_MAXHOST] = {};
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (::getnameinfo(each->ifa_addr, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0 &&
        !is_loopback(host))
      out.emplace_back(host);
  }
  ::freeifaddrs(all);
  return out;
}

// The variable in which a launcher says how many ranks there are.
std::string size_variable(const RankPlace& place) {
  const char* name =
      place.launcher == "slurm"
          ? std::getenv("SLURM_STEP_NUM_TASKS") != nullptr ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS"
      : place.launcher == "openmpi" ? "OMPI_COMM_WORLD_SIZE"
                                    : "WORLD_SIZE";
  return std::string(name) + "=" + std::to_string(place.world_size);
}

// The single errors of an error.
std::vector<Error> errors_in(const Error& error) {
  const auto* list = dynamic_cast<const ErrorList*>(&error);
  return list == nullptr ? std::vector{error} : list->all();
}

ErrorList with_origin(const std::vector<Error>& errors, int rank, const std::string& host) {
  const std::string origin = (rank < 0 ? std::string("a rank") : "rank " + std::to_string(rank)) +
                             (host.empty() ? "" : " on " + host) + ": ";
  std::vector<Error> out;
  for (const Error& error : errors)
    out.emplace_back(error.code(), error.where(), origin + error.message(), error.hint());
  return ErrorList(std::move(out));
}

std::string pack_all(const Error& error) {
  Words words;
  for (const Error& each : errors_in(error)) words.push_back(pack(each));
  return pack(words);
}

// The errors of a refusal, as a rank that hears it reports them.
ErrorList errors_of(const Refusal& refusal) {
  if (refusal.kind == Refusal::Kind::lost)
    return ErrorList({rank_lost(refusal.rank, "ended before all ranks had met", "", refusal.host)});
  if (refusal.kind == Refusal::Kind::stopped)
    return ErrorList(
        {rank_lost(refusal.rank, std::string("was stopped by ") + ::strsignal(std::stoi(refusal.text)), "",
                   refusal.host)});
  std::vector<Error> errors;
  for (const std::string& each : unpack(refusal.text)) errors.push_back(unpack_error(each));
  const bool is_of_all = refusal.rank < 0 && refusal.host.empty();
  return is_of_all ? ErrorList(std::move(errors)) : with_origin(errors, refusal.rank, refusal.host);
}

}  // namespace

struct Meeting::State : std::enable_shared_from_this<Meeting::State> {
  explicit State(const RankPlace& given) : place(given) {
    greeting.session = place.session, greeting.rank = place.rank, greeting.world_size = place.world_size;
    if (place.rank < 0) greeting.role = Greeting::Role::guest;
    const Process process = this_process();
    greeting.host = host_name(), greeting.table = process.table, greeting.process = process.id;
  }

  void connect();
  void serve();
  std::vector<Address> find_server();
  Words own_addresses() const;
  std::vector<Address> served_by_launcher();
  bool is_address_checked();
  void send_refusal(const Refusal& refusal, milliseconds most);
  void say_waiting(const Log& log, milliseconds waited, const std::string& text, bool is_connected);
  std::string waiting_text(const Words& answer) const;
  std::string connecting_text() const;
  std::string launcher_text(bool alone) const;
  void refuse_loopback(milliseconds waited);
  Error timeout_error(const std::string& text) const;
  bool is_connected(const Log& log, milliseconds waited);
  std::optional<Met> ask_for_all(const Log& log, milliseconds waited, const OnStopped& on_stopped);
  Met met(const Words& answer) const;
  [[noreturn]] void throw_refusal(const Refusal& refusal, const std::function<void(int, int)>& on_stopped);
  std::string address_text() const { return place.host + ":" + std::to_string(place.port); }
  bool serves() const { return place.rank == 0; }

  const RankPlace place;
  int listen_fd = place.listen_fd;  // -1: taken, or none
  Greeting greeting;

  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false, has_joined = false;
  std::atomic<bool> is_reached = false;  // rank 0 reaches its own store at MASTER_ADDR
  c10::intrusive_ptr<StoreClient> client;
  std::shared_ptr<StoreServer> server;
  std::function<void(int)> gone;
  std::vector<int> gone_early;  // before `gone` was there
  std::function<void(int)> stop_joined;
  std::string fault = "its address is being looked up";  // why there is no connection yet
  bool is_taken = false;                                 // rank 0 gets no port for its store

  // State of join(), used by its thread alone.
  milliseconds timeout{};
  std::string said;
  milliseconds said_at{};
};

Meeting::Meeting(const RankPlace& place) : state_(std::make_shared<State>(place)) {
  run_detached([state = state_] { state->connect(); });
}

Meeting::~Meeting() {
  const std::lock_guard lock(state_->mutex);
  state_->stop = true;
  state_->server.reset();
  state_->changed.notify_all();
}

void Meeting::follow(std::function<void(int rank)> gone, std::function<void(int signal)> stop) {
  std::vector<int> early;
  {
    const std::lock_guard lock(state_->mutex);
    state_->gone = gone;
    state_->stop_joined = std::move(stop);
    state_->changed.notify_all();
    if (gone) early.swap(state_->gone_early);
  }
  for (const int rank : early) gone(rank);
}

// Rank 0 listens first. If the port is taken, whoever has it is asked whether it is another rank 0.
void Meeting::State::serve() {
  std::string why;
  const int handed = place.store_served ? -1 : std::exchange(listen_fd, -1);
  Socket listening = handed >= 0 ? Socket(handed) : listen_on(place.store_served ? 0 : place.port, why);
  if (!listening.is_open()) {
    const std::lock_guard lock(mutex);
    fault = "port " + std::to_string(place.port) + " of this machine is in use (" + why + ")";
    return;
  }
  const auto on_gone = [weak = weak_from_this()](int rank) {
    const auto self = weak.lock();
    if (!self) return;
    std::function<void(int)> call;
    {
      const std::lock_guard lock(self->mutex);
      call = self->gone;
      if (!call) self->gone_early.push_back(rank);
    }
    if (call) call(rank);
  };
  auto made = std::make_shared<StoreServer>(std::move(listening), greeting, on_gone);
  const std::lock_guard lock(mutex);
  if (!stop) server = std::move(made);
  changed.notify_all();
}

// The addresses of this machine, the one that leads to MASTER_ADDR first.
Words Meeting::State::own_addresses() const {
  if (is_loopback(place.host)) return {"127.0.0.1"};
  Words out = interface_addresses();
  const std::string best = address_towards(place.host, place.port);
  if (!best.empty() && !is_loopback(best)) {
    std::erase(out, best);
    out.insert(out.begin(), best);
  }
  return out.empty() ? Words{"127.0.0.1"} : out;
}

// Finds the store of rank 0 through the TCPStore that torchrun's agent serves at MASTER_ADDR. Rank 0 writes
// its address there and replaces the address of an earlier rank 0 that does not answer.
std::vector<Address> Meeting::State::served_by_launcher() {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(place.port);
  options.isServer = options.waitWorkers = options.useLibUV = false;
  options.timeout = std::chrono::hours(24);
  const auto agent = c10::make_intrusive<c10d::TCPStore>(place.host, options);
  const auto session = c10::make_intrusive<c10d::PrefixStore>("heddle" + place.session, agent);
  const std::string key = "store";
  const auto addresses_in = [](const std::string& packed) {
    const Words hosts = unpack(packed);
    std::vector<Address> out;
    std::string ignored;
    for (size_t i = 1; i < hosts.size(); ++i)
      for (const Address& address : resolve(hosts[i], std::stoi(hosts[0]), ignored)) out.push_back(address);
    return out;
  };
  if (serves()) {
    Words hosts = own_addresses();
    const std::lock_guard lock(mutex);
    if (!server) throw std::runtime_error("no store is served");
    hosts.insert(hosts.begin(), std::to_string(server->port()));
    const std::string mine = pack(hosts),
                      stored = static_cast<c10d::Store&>(*session).compareSet(key, "", mine);
    std::string ignored;
    if (stored != mine && !connect_to(addresses_in(stored), kToConnect, ignored).is_open())
      static_cast<c10d::Store&>(*session).set(key, mine);
  }
  return addresses_in(session->get_to_str(key));
}

std::vector<Address> Meeting::State::find_server() {
  if (place.store_served) return served_by_launcher();
  std::string why;
  int own_port = 0;
  {
    const std::lock_guard lock(mutex);
    if (server) own_port = server->port();
  }
  if (own_port > 0) return resolve("127.0.0.1", own_port, why);
  const auto out = resolve(place.host, place.port, why);
  if (out.empty()) throw std::runtime_error("the name " + place.host + " has no address (" + why + ")");
  return out;
}

// Rank 0 reaches its store without MASTER_ADDR. Returns whether it is known now which rank 0 serves there;
// two of them refuse the run.
bool Meeting::State::is_address_checked() {
  if (place.store_served || place.listen_fd >= 0 || is_loopback(place.host)) return true;
  std::string why, id;
  {
    const std::lock_guard lock(mutex);
    if (!server) return true;
    id = server->id();
  }
  try {
    Greeting guest = greeting;
    guest.role = Greeting::Role::guest;
    StoreClient other(resolve(place.host, place.port, why), guest, kToConnect, kToConnect);
    if (other.server_id() == id) return true;
    const Error twice(
        ErrorCode::mesh, "mesh",
        "rank 0 exists twice: as process " + std::to_string(other.server_process()) + " on " +
            other.server_host() + " and as process " + std::to_string(greeting.process) + " on " +
            greeting.host,
        "give each process a rank of its own, from 0 to " + std::to_string(place.world_size - 1));
    const Refusal refusal{Refusal::Kind::error, -1, "", pack_all(twice)};
    other.ask({"refuse", refusal.packed()});
    const std::lock_guard lock(mutex);
    if (server) server->refuse(refusal);
    return true;
  } catch (const std::exception&) {
    return false;  // the other one may start later; or this machine itself does not reach the address
  }
}

void Meeting::State::connect() {
  const auto begin = std::chrono::steady_clock::now();
  for (milliseconds pause = kFirstPause;; pause = std::min(pause * 2, kLastPause)) {
    try {
      if (serves() && !server) serve();
      auto made =
          c10::make_intrusive<StoreClient>(find_server(), greeting, kToConnect, std::chrono::hours(24));
      const std::lock_guard lock(mutex);
      client = std::move(made);
      changed.notify_all();
      break;
    } catch (const std::exception& thrown) {
      const std::string text = thrown.what();
      std::unique_lock lock(mutex);
      if (!serves()) fault = text.substr(0, text.find('\n'));
      is_taken = serves() && !server && std::chrono::steady_clock::now() - begin > kForPort;
      if (changed.wait_for(lock, pause, [&] { return stop; })) return;
    }
  }
  while (serves() && !is_address_checked()) {
    std::unique_lock lock(mutex);
    if (changed.wait_for(lock, kLastPause, [&] { return stop || has_joined; })) return;
  }
  is_reached = true;
}

std::string Meeting::State::launcher_text(bool alone) const {
  if (place.launcher == "heddle" || place.launcher.empty()) return "";
  const bool is_outside_srun =
      alone && place.launcher == "slurm" && std::getenv("SLURM_STEP_NUM_TASKS") == nullptr;
  return " (" + size_variable(place) + (is_outside_srun ? ": was srun left out?" : "") + ")";
}

std::string Meeting::State::connecting_text() const {
  return "waiting for rank 0 of " + std::to_string(place.world_size) + " at " + address_text() +
         launcher_text(false) + ": " + fault;
}

std::string Meeting::State::waiting_text(const Words& answer) const {
  const std::string &absent = answer.at(1), &preparing = answer.at(3), &here = answer.at(4);
  const int count = std::stoi(answer.at(2));
  std::string out = "waiting for ";
  if (count > 0)
    out += std::string(count > 1 ? "ranks " : "rank ") + absent + " of " + std::to_string(place.world_size) +
           " at " + address_text() + launcher_text(count == place.world_size - 1);
  if (count > 0 && is_loopback(place.host) && place.launcher != "heddle")
    out += ", which other machines cannot reach";
  if (count > 0 && serves() && !is_reached)
    out += ", where " + greeting.host + " does not reach itself (is MASTER_ADDR the host of rank 0?)";
  if (!preparing.empty()) out += (count > 0 ? ", and for " : "") + preparing + " to prepare the run";
  return out + (count > 0 ? "; " + here + " came" : "");
}

// The first rank of a machine prints, when it has waited for some seconds and when the reason changes. Where
// rank 0 does not answer, rank 1 prints in its place.
void Meeting::State::say_waiting(const Log& log, milliseconds waited, const std::string& text,
                                 bool is_connected) {
  const bool prints = place.local_rank == 0 || (place.rank == 1 && !is_connected);
  if (!prints || waited < kToSpeak) return;
  if (!said.empty() && waited - said_at < (text == said ? kToSpeakAgain : kToSpeak)) return;
  said = text;
  said_at = waited;
  log.warning("mesh", text);
}

// A launcher that says that ranks are on several machines, with an address of one machine alone.
void Meeting::State::refuse_loopback(milliseconds waited) {
  if (waited < kForLoopback || place.local_world_size == place.world_size || !is_loopback(place.host)) return;
  const Error error(ErrorCode::usage, "environment MASTER_ADDR",
                    "is '" + place.host + "', which on " + greeting.host + " means " + greeting.host +
                        " itself, and the ranks are on several machines (" +
                        std::to_string(place.local_world_size) + " of " + std::to_string(place.world_size) +
                        " ranks are here)",
                    "set MASTER_ADDR to the name or the address of rank 0's machine on every rank");
  send_refusal({Refusal::Kind::error, greeting.rank, greeting.host, pack_all(error)}, kForSignal);
  throw error;
}

// Serves until the others know the refusal too.
void Meeting::State::throw_refusal(const Refusal& refusal, const OnStopped& on_stopped) {
  const bool is_stop = refusal.kind == Refusal::Kind::stopped;
  if (server) server->wait_until_told(is_stop ? milliseconds(kForSignal) : milliseconds(kForRefusal));
  if (is_stop && on_stopped) on_stopped(refusal.rank, std::stoi(refusal.text));
  throw errors_of(refusal);
}

Met Meeting::State::met(const Words& answer) const {
  Met out{client, {}, client->own_address()};
  const Words names = unpack(answer.at(2)), ranks = unpack(answer.at(3));
  if (names.size() < 2) return out;
  if (is_loopback(out.address) && !answer.at(1).empty()) out.address = answer.at(1);
  out.host_names.resize(static_cast<size_t>(place.world_size));
  for (size_t host = 0; host < names.size(); ++host) {
    std::istringstream list(ranks[host]);
    for (std::string rank; std::getline(list, rank, ',');) out.host_names.at(std::stoul(rank)) = names[host];
  }
  return out;
}

Error Meeting::State::timeout_error(const std::string& text) const {
  return {ErrorCode::timeout, "mesh", "the ranks did not meet in " + in_seconds(timeout) + ": " + text,
          "Check that every rank runs, and that MASTER_ADDR and MASTER_PORT name rank 0's machine and a free "
          "port. Raise dist_env.timeout_minutes if the ranks need more time."};
}

// One look at whether this rank is connected to the store.
bool Meeting::State::is_connected(const Log& log, milliseconds waited) {
  std::string text;
  {
    std::unique_lock lock(mutex);
    if (changed.wait_for(lock, std::min(kLookSlice, timeout), [&] { return client != nullptr; })) return true;
    text = connecting_text();
    if (is_taken)
      throw Error(ErrorCode::usage, "environment MASTER_PORT", fault,
                  "choose a port that no other program uses, the same on every rank");
  }
  say_waiting(log, waited, text, false);
  refuse_loopback(waited);
  if (waited >= timeout) throw timeout_error(text);
  return false;
}

// One question for the others: all of them, or nothing yet.
std::optional<Met> Meeting::State::ask_for_all(const Log& log, milliseconds waited,
                                               const OnStopped& on_stopped) {
  const milliseconds most = std::min(kLookSlice, timeout);
  const Words answer = client->ask({"join", std::to_string(most.count())}, most);
  if (answer.at(0) == "refused") throw_refusal(Refusal::unpacked(answer.at(1)), on_stopped);
  if (answer.at(0) == "all") return met(answer);
  const std::string text = waiting_text(answer);
  say_waiting(log, waited, text, true);
  refuse_loopback(waited);
  if (waited >= timeout) throw timeout_error(text);
  return std::nullopt;
}

Met Meeting::join(milliseconds timeout, const Log& log, const OnStopped& on_stopped) {
  State& state = *state_;
  state.timeout = timeout;
  RunningTime running;
  const auto waited = [&] { return std::chrono::duration_cast<milliseconds>(running.tick()); };
  while (!state.is_connected(log, waited())) continue;
  state.client->setTimeout(std::min<milliseconds>(timeout, kForAnswer));
  try {
    std::optional<Met> all;
    while (!all) all = state.ask_for_all(log, waited(), on_stopped);
    state.client->setTimeout(timeout);
    const std::lock_guard lock(state.mutex);
    state.has_joined = true;
    state.changed.notify_all();
    return std::move(*all);
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {  // the connection broke, or the store was silent
    throw rank_lost(0, "ended, or its machine was not heard, before all ranks had met", "");
  }
}

void Meeting::State::send_refusal(const Refusal& refusal, milliseconds most) {
  std::unique_lock lock(mutex);
  const auto begin = std::chrono::steady_clock::now();
  changed.wait_for(lock, most, [&] { return client != nullptr || server != nullptr; });
  if (const auto served = server) {
    lock.unlock();
    served->refuse(refusal);
    return served->wait_until_told(most);
  }
  if (!client) return;
  lock.unlock();
  try {
    // A connection of its own: the thread that joins may wait on the other one.
    const auto spent = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);
    const auto left = std::max(most - spent, milliseconds(200));
    const auto own = client->connect_again(Greeting::Role::guest, left);
    own->setTimeout(left);
    own->ask({"refuse", refusal.packed()});
  } catch (const std::exception&) {
    return;  // rank 0 is gone
  }
}

ErrorList Meeting::refuse(const Error& error) {
  const State& state = *state_;
  const Greeting& own = state.greeting;
  state_->send_refusal({Refusal::Kind::error, own.rank, own.host, pack_all(error)}, kForRefusal);
  const bool is_spread = state.place.rank < 0 || state.place.local_world_size < state.place.world_size;
  return is_spread ? with_origin(errors_in(error), own.rank, own.host) : ErrorList(errors_in(error));
}

void Meeting::stop(int signal) {
  const auto followed = [&](milliseconds most) {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait_for(lock, most, [&] { return state_->stop_joined != nullptr; });
    return state_->stop_joined;
  };
  if (const auto tell = followed({})) return tell(signal);
  state_->send_refusal(
      {Refusal::Kind::stopped, state_->greeting.rank, state_->greeting.host, std::to_string(signal)},
      kForSignal);
  // All may have joined meanwhile: then the refusal came too late.
  bool has_joined = false;
  {
    const std::lock_guard lock(state_->mutex);
    has_joined = state_->has_joined;
  }
  if (!has_joined) return;
  if (const auto tell = followed(kForSignal)) tell(signal);
}

}  // namespace heddle::mesh

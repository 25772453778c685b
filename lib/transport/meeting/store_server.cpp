// One thread with epoll; requests that wait are answered when their keys exist, or when their time is over.
#include "lib/transport/meeting/store_server.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>

#include "core/mesh/packed.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/mesh/call.h"

namespace heddle::mesh {
namespace {

using Clock = std::chrono::steady_clock;
using Words = std::vector<std::string>;

constexpr std::chrono::seconds kToGreet{10}, kToCome{5};
constexpr size_t kLongestGreeting = 4096;
constexpr size_t kMostUnread = size_t{1} << 30;   // bytes that wait for one reader
constexpr std::chrono::milliseconds kRound{100};  // how often times are looked at

std::string random_word() {
  std::random_device source;
  return std::to_string(source()) + std::to_string(source());
}

std::string join_numbers(const std::vector<int>& ranks) {
  Words words;
  for (const int rank : ranks) words.push_back(std::to_string(rank));
  return text::join(words, ",");
}

struct Connection {
  Socket socket;
  Clock::time_point since = Clock::now();
  bool greeted = false;
  Greeting greeting = {};
  std::string in = {}, out = {};
  size_t sent = 0;  // bytes of `out`
};

// A request that is answered later: when `missing` keys exist, or at `end`.
struct Waiter {
  int connection = 0;
  Words keys = {};
  size_t missing = 0;
  Clock::time_point end = {};
};

struct Member {
  int connection = -1;  // -1: its connection has ended
  Greeting greeting = {};
  bool is_confirmed = false, joined = false, told = false;
  Clock::time_point answer_by = {};
  bool waits = false;
};

}  // namespace

struct StoreServer::State {
  State(Socket listening, Greeting greeting, std::function<void(int)> gone)
      : listener(std::move(listening)), own(std::move(greeting)), on_gone(std::move(gone)) {}
  ~State() {
    if (poller >= 0) ::close(poller);
    if (wake >= 0) ::close(wake);
  }

  void serve();
  void accept_all();
  void serve_connection(int id, bool is_writable);
  void read_from(int id);
  void write_to(int id);
  void drop(int id);
  void answer(int id, const Words& words);
  void handle(int id, const Words& words);
  void greet(int id, const Words& words);
  void join(int id, const Words& words);
  void take_refusal(const Refusal& first);
  void tell_refusal(int id);
  void note_told(int rank);
  void answer_joins();
  void check_deadlines();
  void store_request(int id, const Words& words);
  void set(const std::string& key, std::string value);
  void forget(int64_t number);  // a waiter
  void wait_for_keys(int id, Words keys, std::chrono::milliseconds most);
  void answer_values(int id, const Words& keys);
  Words whole_answer() const;
  Words waiting_answer() const;
  std::optional<Error> find_conflict(const Greeting& greeting) const;

  Socket listener;
  const Greeting own;
  const std::function<void(int)> on_gone;
  const std::string id = random_word();
  int poller = -1, wake = -1;

  std::map<int, Connection> connections;  // by descriptor
  std::unordered_map<std::string, std::string> values;
  std::map<int64_t, Waiter> waiters;
  std::unordered_multimap<std::string, int64_t> waiting_for;
  int64_t waiter_count = 0;
  std::map<int, Member> members;  // by rank
  std::string reached_at;         // the address of this machine that other machines use
  bool all_joined = false;
  int joined_count = 0;
  Clock::time_point next_check = {};

  std::mutex mutex;  // of what other threads touch
  std::condition_variable changed;
  bool stop = false;
  std::optional<Refusal> asked;    // by this process
  std::optional<Refusal> refusal;  // of the server's thread
  std::set<int> told;
  int untold = -1;  // ranks that are connected and do not know the refusal; -1: there is none yet
  const Clock::time_point since = Clock::now();
};

void run_detached(std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  for (const int fatal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) sigdelset(&all, fatal);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  std::thread(std::move(body)).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

StoreServer::StoreServer(Socket listening, Greeting greeting, std::function<void(int rank)> on_gone)
    : state_(std::make_shared<State>(std::move(listening), std::move(greeting), std::move(on_gone))) {
  State& state = *state_;
  rlimit files{};  // a run of 4,096 ranks has three connections of each
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  state.poller = ::epoll_create1(EPOLL_CLOEXEC);
  state.wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  ::fcntl(state.listener.descriptor(), F_SETFL, O_NONBLOCK);
  for (const int watched : {state.wake, state.listener.descriptor()}) {
    epoll_event event{EPOLLIN, {.fd = watched}};
    if (::epoll_ctl(state.poller, EPOLL_CTL_ADD, watched, &event) != 0)
      throw Error(ErrorCode::internal, "mesh", "the store of the ranks cannot be served: epoll failed");
  }
  run_detached([state = state_] { state->serve(); });
}

StoreServer::~StoreServer() {
  const std::lock_guard lock(state_->mutex);
  state_->stop = true;
  [[maybe_unused]] const auto woken = ::eventfd_write(state_->wake, 1);
}

int StoreServer::port() const {
  return state_->listener.port();
}

const std::string& StoreServer::id() const {
  return state_->id;
}

void StoreServer::refuse(const Refusal& refusal) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->asked) state_->asked = refusal;
  [[maybe_unused]] const auto woken = ::eventfd_write(state_->wake, 1);
}

// Ranks that were started together have connected after some seconds: from then on those that are here count.
void StoreServer::wait_until_told(std::chrono::milliseconds most) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  const auto end = Clock::now() + most;
  const auto all = [&] { return static_cast<int>(state.told.size()) >= state.own.world_size - 1; };
  if (state.changed.wait_until(lock, std::min(state.since + kToCome, end), all)) return;
  state.changed.wait_until(lock, end, [&] { return all() || state.untold == 0; });
}

void StoreServer::State::serve() {
  std::array<epoll_event, 64> events{};
  for (;;) {
    const int count = ::epoll_wait(poller, events.data(), static_cast<int>(events.size()),
                                   static_cast<int>(kRound.count()));
    for (int i = 0; i < count; ++i) {
      const int descriptor = events[i].data.fd;
      eventfd_t ignored = 0;
      if (descriptor == wake)
        ::eventfd_read(wake, &ignored);
      else if (descriptor == listener.descriptor())
        accept_all();
      else
        serve_connection(descriptor, (events[i].events & EPOLLOUT) != 0);
    }
    std::optional<Refusal> given;
    {
      const std::lock_guard lock(mutex);
      if (stop) return;
      given = asked;
    }
    if (given && !refusal) take_refusal(*given);
    if (const auto now = Clock::now(); now >= next_check) {
      check_deadlines();
      next_check = now + kRound;
    }
  }
}

// A connection whose message asks for more memory than there is, or makes no sense, is closed.
void StoreServer::State::serve_connection(int id, bool is_writable) {
  try {
    is_writable ? write_to(id) : read_from(id);
  } catch (const std::exception&) {
    drop(id);
  }
}

void StoreServer::State::accept_all() {
  for (;;) {
    Socket socket(::accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) {
      if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(kRound);
      return;
    }
    const int descriptor = socket.descriptor();
    epoll_event event{EPOLLIN, {.fd = descriptor}};
    ::epoll_ctl(poller, EPOLL_CTL_ADD, descriptor, &event);
    connections.emplace(descriptor, Connection{std::move(socket)});
  }
}

void StoreServer::State::read_from(int id) {
  const auto found = connections.find(id);
  if (found == connections.end()) return;
  Connection& connection = found->second;
  std::array<char, 65536> bytes;
  const ssize_t count = ::recv(id, bytes.data(), bytes.size(), 0);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return drop(id);
  if (count > 0) connection.in.append(bytes.data(), static_cast<size_t>(count));
  while (connections.contains(id) && connection.in.size() >= kLengthBytes) {
    const size_t length = length_of(connection.in.data());
    if (length > (connection.greeted ? kLongestMessage : kLongestGreeting)) return drop(id);
    if (connection.in.size() < kLengthBytes + length) return;
    const std::string request = connection.in.substr(kLengthBytes, length);
    connection.in.erase(0, kLengthBytes + length);
    const Words words = unpack(request);
    if (!connection.greeted && words.at(0) != kGreeting) return drop(id);
    handle(id, words);
  }
}

void StoreServer::State::write_to(int id) {
  const auto found = connections.find(id);
  if (found == connections.end()) return;
  std::string& out = found->second.out;
  size_t& sent = found->second.sent;
  while (sent < out.size()) {
    const ssize_t count = ::send(id, out.data() + sent, out.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) return drop(id);
    sent += static_cast<size_t>(count);
  }
  if (sent == out.size()) out.clear(), sent = 0;
  epoll_event event{static_cast<uint32_t>(out.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT), {.fd = id}};
  ::epoll_ctl(poller, EPOLL_CTL_MOD, id, &event);
}

void StoreServer::State::drop(int id) {
  const auto found = connections.find(id);
  if (found == connections.end()) return;
  const Greeting greeting = found->second.greeting;
  connections.erase(found);  // closes
  std::vector<int64_t> own_waiters;
  for (const auto& [number, waiter] : waiters)
    if (waiter.connection == id) own_waiters.push_back(number);
  for (const int64_t number : own_waiters) forget(number);
  const auto member = members.find(greeting.rank);
  if (greeting.role != Greeting::Role::rank || member == members.end() || member->second.connection != id)
    return;
  member->second.connection = -1;
  if (member->second.joined && !all_joined) --joined_count;
  note_told(0);
  if (!member->second.is_confirmed) {
    members.erase(member);
    return;
  }
  if (all_joined) {
    if (on_gone) on_gone(greeting.rank);
    return;
  }
  const std::lock_guard lock(mutex);
  if (!refusal && !asked) asked = Refusal{Refusal::Kind::lost, greeting.rank, greeting.host, ""};
}

void StoreServer::State::answer(int id, const Words& words) {
  const auto found = connections.find(id);
  if (found == connections.end()) return;
  const bool was_empty = found->second.out.empty();
  found->second.out += with_length(pack(words));
  if (found->second.out.size() > kMostUnread) return drop(id);
  if (was_empty) write_to(id);
}

void StoreServer::State::handle(int id, const Words& words) {
  if (words.at(0) == kGreeting) return greet(id, words);
  if (words[0] == kHere) {
    const auto member = members.find(connections.at(id).greeting.rank);
    if (member != members.end()) member->second.is_confirmed = true;
    return;
  }
  if (words[0] == "join") return join(id, words);
  if (words[0] == "refuse") {
    take_refusal(Refusal::unpacked(words.at(1)));
    note_told(connections.at(id).greeting.rank);
    return answer(id, {"ok"});
  }
  store_request(id, words);
}

// Finds what is wrong with a process that wants to be a rank: its number, its world size, or that the rank is
// taken.
std::optional<Error> StoreServer::State::find_conflict(const Greeting& greeting) const {
  const auto known = members.find(greeting.rank);
  const std::string name = "rank " + std::to_string(greeting.rank) + " on " + greeting.host;
  if (all_joined && (known == members.end() || !is_same_process(known->second.greeting, greeting)))
    return Error(
        ErrorCode::usage, "mesh",
        name + " came to a run that has already begun, whose rank 0 is process " +
            std::to_string(own.process) + " on " + own.host,
        "End that run, or set MASTER_PORT to another port on every rank. If this process belongs to that "
        "run, give each process its own rank.");
  if (greeting.world_size != own.world_size)
    return Error(ErrorCode::mesh, "mesh",
                 "the world of " + name + " has " + std::to_string(greeting.world_size) +
                     " ranks, and the world of rank 0 on " + own.host + " has " +
                     std::to_string(own.world_size),
                 "start every rank with the same world size");
  if (greeting.rank < 0 || greeting.rank >= own.world_size)
    return Error(ErrorCode::mesh, "mesh",
                 name + " is not one of the " + std::to_string(own.world_size) + " ranks",
                 "number the ranks from 0");
  if (known == members.end() || (!all_joined && known->second.connection < 0) ||
      is_same_process(known->second.greeting, greeting))
    return std::nullopt;
  return Error(ErrorCode::mesh, "mesh",
               "rank " + std::to_string(greeting.rank) + " exists twice: as process " +
                   std::to_string(known->second.greeting.process) + " on " + known->second.greeting.host +
                   " and as process " + std::to_string(greeting.process) + " on " + greeting.host,
               "give each process a rank of its own, from 0 to " + std::to_string(own.world_size - 1));
}

// A conflict before all have joined refuses the run for every rank, afterwards for the new process only.
void StoreServer::State::greet(int id, const Words& words) {
  Connection& connection = connections.at(id);
  connection.greeted = true;
  Greeting greeting = Greeting::unpacked(words.at(1));
  if (greeting.role != Greeting::Role::guest && greeting.session != own.session)
    return drop(id);  // another attempt
  answer(id, {"ok", this->id, own.host, std::to_string(own.process)});
  if (greeting.role == Greeting::Role::guest) connection.greeting = std::move(greeting);
  if (greeting.role != Greeting::Role::rank) return;
  if (const auto conflict = find_conflict(greeting)) {
    const Refusal refused{Refusal::Kind::error, -1, "", pack(Words{pack(*conflict)})};
    take_refusal(refused);
    return answer(id, {"refused", refused.packed()});
  }
  if (reached_at.empty() && host_key(greeting) != host_key(own)) reached_at = connection.socket.own_address();
  connection.greeting = greeting;
  Member& member = members[greeting.rank];
  if (member.joined && member.connection >= 0) --joined_count;
  member = {id, std::move(greeting)};
  if (refusal) tell_refusal(id);
}

// A refusal has been sent when the rank greeted, or when it came.
void StoreServer::State::join(int id, const Words& words) {
  const auto found = members.find(connections.at(id).greeting.rank);
  if (refusal || found == members.end()) return;
  Member& member = found->second;
  if (!member.joined) ++joined_count;
  member.joined = member.waits = true;
  member.answer_by = Clock::now() + std::chrono::milliseconds(std::stoi(words.at(1)));
  all_joined = joined_count == own.world_size;
  if (all_joined) answer_joins();
}

void StoreServer::State::take_refusal(const Refusal& first) {
  if (!refusal && !all_joined) {
    refusal = first;
    note_told(0);
    return answer_joins();
  }
  note_told(0);
}

void StoreServer::State::tell_refusal(int id) {
  answer(id, {"refused", refusal->packed()});
  const auto found = connections.find(id);
  if (found != connections.end()) note_told(found->second.greeting.rank);
}

// Notes that this rank knows the refusal; 0: none. Counts the ranks that do not.
void StoreServer::State::note_told(int rank) {
  const std::lock_guard lock(mutex);
  if (rank > 0) told.insert(rank);
  if (const auto member = members.find(rank); rank > 0 && member != members.end()) member->second.told = true;
  if (!refusal) return;
  untold = static_cast<int>(std::count_if(members.begin(), members.end(), [](const auto& entry) {
    return entry.first > 0 && entry.second.connection >= 0 && !entry.second.told;
  }));
  changed.notify_all();
}

// Answers every rank that waits in join(). A refusal also goes to a rank that does not wait yet: it answers
// the next request of that rank.
void StoreServer::State::answer_joins() {
  const Words whole = refusal ? Words() : whole_answer();
  for (auto& [rank, member] : members) {
    if ((!member.waits && !refusal) || member.connection < 0) continue;
    member.waits = false;
    refusal ? tell_refusal(member.connection) : answer(member.connection, whole);
  }
}

// {"all", the address of rank 0's machine, host names, the ranks of each host}. Hosts differ by their process
// tables; of several hosts with one name, the later ones get a number: "node (2)".
Words StoreServer::State::whole_answer() const {
  std::map<std::string, std::pair<std::string, std::vector<int>>> hosts;
  std::map<std::string, int> count;  // hosts by name
  for (const auto& [rank, member] : members) {
    auto& [name, ranks] = hosts[host_key(member.greeting)];
    if (name.empty()) {
      const int number = ++count[member.greeting.host];
      name = member.greeting.host + (number == 1 ? "" : " (" + std::to_string(number) + ")");
    }
    ranks.push_back(rank);
  }
  Words names, ranks;
  for (const auto& [table, host] : hosts) {
    names.push_back(host.first);
    ranks.push_back(join_numbers(host.second));
  }
  return {"all", reached_at, pack(names), pack(ranks)};
}

// {"waiting", ranks that have not come, ranks that have come and prepare, the hosts that are here}
Words StoreServer::State::waiting_answer() const {
  std::vector<int> absent, preparing, here;
  for (int rank = 0; rank < own.world_size; ++rank) {
    const auto member = members.find(rank);
    if (member == members.end())
      absent.push_back(rank);
    else
      (member->second.joined ? here : preparing).push_back(rank);
  }
  const auto host = [&](int rank) { return members.at(rank).greeting.host; };
  return {"waiting", absent.empty() ? "" : list_ranks(absent), std::to_string(absent.size()),
          preparing.empty() ? "" : name_ranks(preparing, host), here.empty() ? "" : name_ranks(here, host)};
}

void StoreServer::State::check_deadlines() {
  const auto now = Clock::now();
  std::vector<int> late;
  for (auto& [rank, member] : members) {
    if (!member.waits || member.connection < 0 || now < member.answer_by) continue;
    member.waits = false;
    late.push_back(member.connection);
  }
  if (!late.empty()) {
    const Words waiting = waiting_answer();
    for (const int id : late) answer(id, waiting);
  }
  std::vector<std::pair<int64_t, Waiter>> over;
  for (const auto& entry : waiters)
    if (now >= entry.second.end) over.push_back(entry);
  for (const auto& [number, waiter] : over) {
    if (!waiters.contains(number)) continue;  // its connection was closed by an answer to another one
    forget(number);
    answer(waiter.connection, {"absent"});
  }
  std::vector<int> silent;
  for (const auto& [id, connection] : connections)
    if (!connection.greeted && now - connection.since > kToGreet) silent.push_back(id);
  for (const int id : silent) drop(id);
}

void StoreServer::State::forget(int64_t number) {
  for (const std::string& key : waiters.at(number).keys) {
    const auto [begin, end] = waiting_for.equal_range(key);
    for (auto at = begin; at != end;) at = at->second == number ? waiting_for.erase(at) : std::next(at);
  }
  waiters.erase(number);
}

void StoreServer::State::set(const std::string& key, std::string value) {
  const bool is_new = !values.contains(key);
  values[key] = std::move(value);
  if (!is_new) return;
  const auto [begin, end] = waiting_for.equal_range(key);
  std::vector<int64_t> done;
  for (auto at = begin; at != end; ++at) {
    const auto waiter = waiters.find(at->second);
    if (waiter != waiters.end() && --waiter->second.missing == 0) done.push_back(at->second);
  }
  waiting_for.erase(begin, end);
  for (const int64_t number : done) {
    const auto waiter = waiters.find(number);
    if (waiter == waiters.end()) continue;
    const Waiter done_waiting = std::move(waiter->second);
    waiters.erase(waiter);
    wait_for_keys(done_waiting.connection, done_waiting.keys, std::chrono::milliseconds(0));
  }
}

void StoreServer::State::wait_for_keys(int id, Words keys, std::chrono::milliseconds most) {
  std::set<std::string> missing;
  for (const std::string& key : keys)
    if (!values.contains(key)) missing.insert(key);
  if (missing.empty()) return answer_values(id, keys);
  if (most.count() == 0) return answer(id, {"absent"});
  const int64_t number = waiter_count++;
  for (const std::string& key : missing) waiting_for.emplace(key, number);
  waiters[number] = {id, std::move(keys), missing.size(), Clock::now() + most};
}

void StoreServer::State::answer_values(int id, const Words& keys) {
  Words out = {"values"};
  for (const std::string& key : keys) out.push_back(values.at(key));
  answer(id, out);
}

void StoreServer::State::store_request(int id, const Words& words) {
  const std::string& operation = words.at(0);
  if (operation == "get")
    return wait_for_keys(id, {words.begin() + 2, words.end()},
                         std::chrono::milliseconds(std::stoi(words.at(1))));
  if (operation == "set") {
    for (size_t i = 1; i + 1 < words.size(); i += 2) set(words[i], words[i + 1]);
    return answer(id, {"ok"});
  }
  if (operation == "check") {
    const bool all = std::all_of(words.begin() + 1, words.end(),
                                 [&](const std::string& key) { return values.contains(key); });
    return answer(id, {all ? "1" : "0"});
  }
  if (operation == "count") return answer(id, {std::to_string(values.size())});
  const std::string& key = words.at(1);
  const auto found = values.find(key);
  if (operation == "add") {
    const int64_t sum = (found == values.end() ? 0 : std::stoll(found->second)) + std::stoll(words.at(2));
    set(key, std::to_string(sum));
    answer(id, {std::to_string(sum)});
  } else if (operation == "append") {
    found == values.end() ? set(key, words.at(2)) : void(found->second += words.at(2));
    answer(id, {"ok"});
  } else if (operation == "delete") {
    answer(id, {std::to_string(values.erase(key))});
  } else if (operation == "compare") {
    // A key without a value is set where an empty value is expected.
    const bool is_expected = found == values.end() ? words.at(2).empty() : found->second == words.at(2);
    if (is_expected) set(key, words.at(3));
    answer(id, {is_expected ? words[3] : found == values.end() ? words[2] : values.at(key)});
  } else {
    drop(id);
  }
}

}  // namespace heddle::mesh

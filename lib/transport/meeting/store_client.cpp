// Requests as lists of texts.
#include "lib/transport/meeting/store_client.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/mesh/packed.h"

namespace heddle::mesh {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kGetSlice{500};

std::vector<uint8_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string as_text(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace

StoreClient::StoreClient(std::vector<Address> addresses, Greeting greeting, std::chrono::milliseconds most,
                         std::chrono::milliseconds timeout)
    : Store(timeout), addresses_(std::move(addresses)), greeting_(std::move(greeting)) {
  std::string fault = "no address";
  for (const Address& address : std::vector<Address>(addresses_)) {
    socket_ = connect_to({address}, most, fault);
    if (!socket_.is_open()) continue;
    std::string answer;
    if (send_message(socket_, pack(Words{kGreeting, greeting_.packed()}), most) &&
        receive_message(socket_, answer, most)) {
      const Words words = unpack(answer);
      server_id_ = words.at(1), server_host_ = words.at(2), server_process_ = std::stoi(words.at(3));
      if (greeting_.role == Greeting::Role::rank) send_message(socket_, pack(Words{kHere}), most);
      addresses_ = {Address(address)};
      return;
    }
    fault = "another program answers there";
    socket_ = Socket();
  }
  throw std::runtime_error(fault);
}

StoreClient::Words StoreClient::ask(const Words& request, std::chrono::milliseconds wait) {
  const std::lock_guard lock(mutex_);
  std::string answer;
  // A refusal may have come before the store ended: it is read even if nothing can be sent any more.
  send_message(socket_, pack(request), timeout_);
  if (!receive_message(socket_, answer, timeout_ + wait))
    throw std::runtime_error("the connection to the store of rank 0 broke");
  return unpack(answer);
}

void StoreClient::close() {
  ::shutdown(socket_.descriptor(), SHUT_RDWR);
}

c10::intrusive_ptr<StoreClient> StoreClient::connect_again(Greeting::Role role,
                                                           std::chrono::milliseconds most) {
  Greeting greeting = greeting_;
  greeting.role = role;
  return c10::make_intrusive<StoreClient>(addresses_, greeting, most, timeout_);
}

c10::intrusive_ptr<c10d::Store> StoreClient::clone() {
  return connect_again(Greeting::Role::link, timeout_);
}

void StoreClient::set(const std::string& key, const std::vector<uint8_t>& value) {
  ask({"set", key, as_text(value)});
}

std::vector<uint8_t> StoreClient::compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                             const std::vector<uint8_t>& desired) {
  return bytes(ask({"compare", key, as_text(expected), as_text(desired)}).at(0));
}

// Asks in slices, so that other threads can use the connection.
StoreClient::Words StoreClient::values_of(const std::vector<std::string>& keys,
                                          std::chrono::milliseconds timeout) {
  const auto end = Clock::now() + timeout;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    const auto slice = std::clamp(left, std::chrono::milliseconds(0), kGetSlice);
    Words request = {"get", std::to_string(slice.count())};
    request.insert(request.end(), keys.begin(), keys.end());
    Words answer = ask(request, slice);
    if (answer.at(0) == "values") {
      answer.erase(answer.begin());
      return answer;
    }
    if (left.count() <= 0)
      throw std::runtime_error("no other rank has set " + keys.front() + " in the store");
  }
}

std::vector<uint8_t> StoreClient::get(const std::string& key) {
  return bytes(values_of({key}, timeout_).at(0));
}

int64_t StoreClient::add(const std::string& key, int64_t value) {
  return std::stoll(ask({"add", key, std::to_string(value)}).at(0));
}

bool StoreClient::deleteKey(const std::string& key) {
  return ask({"delete", key}).at(0) == "1";
}

bool StoreClient::check(const std::vector<std::string>& keys) {
  Words request = {"check"};
  request.insert(request.end(), keys.begin(), keys.end());
  return ask(request).at(0) == "1";
}

int64_t StoreClient::getNumKeys() {
  return std::stoll(ask({"count"}).at(0));
}

void StoreClient::wait(const std::vector<std::string>& keys) {
  wait(keys, timeout_);
}

void StoreClient::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  values_of(keys, timeout);
}

void StoreClient::append(const std::string& key, const std::vector<uint8_t>& value) {
  ask({"append", key, as_text(value)});
}

std::vector<std::vector<uint8_t>> StoreClient::multiGet(const std::vector<std::string>& keys) {
  std::vector<std::vector<uint8_t>> out;
  for (const std::string& value : values_of(keys, timeout_)) out.push_back(bytes(value));
  return out;
}

void StoreClient::multiSet(const std::vector<std::string>& keys,
                           const std::vector<std::vector<uint8_t>>& values) {
  Words request = {"set"};
  for (size_t i = 0; i < keys.size(); ++i) {
    request.push_back(keys[i]);
    request.push_back(as_text(values[i]));
  }
  ask(request);
}

}  // namespace heddle::mesh

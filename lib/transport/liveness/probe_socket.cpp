// UDP questions between hosts, and their answers.
#include "lib/transport/liveness/probe_socket.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <random>
#include <sstream>

namespace heddle::mesh {
namespace {

constexpr const char* kQuestion = "heddle?";  // "heddle? NUMBER NUMBER_OF_ASKER RANK"
constexpr const char* kAnswer = "heddle!";    // "heddle! NUMBER_OF_ASKER TEXT"
constexpr int kMostDatagrams = 64;            // that one call of receive() reads

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList resolve(const std::string& host, const std::string& port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &list) != 0) list = nullptr;
  return AddressList(list, ::freeaddrinfo);
}

struct SocketName {
  std::string address, port;
};

SocketName own_name(int fd) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  std::array<char, NI_MAXHOST> address{};
  std::array<char, NI_MAXSERV> port{};
  auto* raw = reinterpret_cast<sockaddr*>(&name);
  if (::getsockname(fd, raw, &length) != 0 ||
      ::getnameinfo(raw, length, address.data(), address.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return {};
  return {address.data(), port.data()};
}

}  // namespace

std::string address_towards(const std::string& host, int port) {
  const AddressList list = resolve(host, std::to_string(port), 0);
  std::string address;
  for (const addrinfo* target = list.get(); target != nullptr && address.empty(); target = target->ai_next) {
    const int fd = ::socket(target->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    if (::connect(fd, target->ai_addr, target->ai_addrlen) == 0) address = own_name(fd).address;
    ::close(fd);
  }
  return address;
}

ProbeSocket::ProbeSocket(const std::string& address) {
  if (address.empty()) return;
  const AddressList own = resolve(address, "0", AI_NUMERICHOST | AI_PASSIVE);
  if (!own) return;
  fd_ = ::socket(own->ai_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd_ < 0 || ::bind(fd_, own->ai_addr, own->ai_addrlen) != 0) return;
  std::random_device source;
  number_ = static_cast<uint64_t>(source()) << 32 | source();
  contact_ = own_name(fd_).port + "/" + std::to_string(number_) + "/" + address;
}

ProbeSocket::~ProbeSocket() {
  if (fd_ >= 0) ::close(fd_);
}

void ProbeSocket::ask(const std::string& contact, int rank) const {
  std::istringstream parts(contact);
  std::string port, number, address;
  if (contact_.empty() || !std::getline(parts, port, '/') || !std::getline(parts, number, '/') ||
      !std::getline(parts, address))
    return;
  const AddressList target = resolve(address, port, AI_NUMERICHOST);
  if (!target) return;
  std::ostringstream text;
  text << kQuestion << ' ' << number << ' ' << number_ << ' ' << rank;
  ::sendto(fd_, text.str().data(), text.str().size(), 0, target->ai_addr, target->ai_addrlen);
}

void ProbeSocket::receive(const std::function<std::string(int)>& answer,
                          const std::function<void(const std::string&)>& heard) const {
  std::array<char, 2048> datagram{};
  for (int i = 0; !contact_.empty() && i < kMostDatagrams; ++i) {
    sockaddr_storage from{};
    socklen_t length = sizeof from;
    auto* sender = reinterpret_cast<sockaddr*>(&from);
    const ssize_t size = ::recvfrom(fd_, datagram.data(), datagram.size(), 0, sender, &length);
    if (size < 0) return;
    std::istringstream words(std::string(datagram.data(), static_cast<size_t>(size)));
    std::string kind;
    uint64_t own = 0, asker = 0;
    int rank = 0;
    if (!(words >> kind >> own) || own != number_) continue;
    if (kind == kQuestion && words >> asker >> rank) {
      const std::string text = std::string(kAnswer) + " " + std::to_string(asker) + " " + answer(rank);
      ::sendto(fd_, text.data(), text.size(), 0, sender, length);
    } else if (std::string text; kind == kAnswer && std::getline(words >> std::ws, text)) {
      heard(text);
    }
  }
}

}  // namespace heddle::mesh

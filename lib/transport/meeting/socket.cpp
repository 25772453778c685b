// Sockets of IPv4 and IPv6; every wait has a limit.
#include "lib/transport/meeting/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace heddle::mesh {
namespace {

constexpr std::chrono::milliseconds kPollSlice{200};

// Counts the time in which this process runs: a pause counts as one slice.
bool is_ready(int descriptor, short events, std::chrono::milliseconds most) {
  for (;; most -= kPollSlice) {
    pollfd entry{descriptor, events, 0};
    const int count = ::poll(&entry, 1, static_cast<int>(std::clamp(most, {}, kPollSlice).count()));
    if (count > 0) return true;
    if ((count < 0 && errno != EINTR) || most <= kPollSlice) return false;
  }
}

void send_at_once(int descriptor) {
  const int yes = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

void set_blocking(int descriptor, bool blocks) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  ::fcntl(descriptor, F_SETFL, blocks ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

Socket connect_one(const Address& address, std::chrono::milliseconds most, std::string& fault) {
  Socket out(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto* target = reinterpret_cast<const sockaddr*>(&address.storage);
  int failure = 0;
  if (::connect(out.descriptor(), target, address.length) != 0) failure = errno;
  if (failure == EINPROGRESS) {
    socklen_t size = sizeof failure;
    failure = ETIMEDOUT;
    if (is_ready(out.descriptor(), POLLOUT, most))
      ::getsockopt(out.descriptor(), SOL_SOCKET, SO_ERROR, &failure, &size);
  }
  if (failure != 0) {
    fault = std::strerror(failure);
    return Socket();
  }
  set_blocking(out.descriptor(), true);
  send_at_once(out.descriptor());
  return out;
}

sockaddr_storage own_side(int descriptor) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &length);
  return own;
}

Socket listening(int family, int port, std::string& fault) {
  Socket out(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1, no = 0;
  ::setsockopt(out.descriptor(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_storage any{};
  any.ss_family = static_cast<sa_family_t>(family);
  socklen_t length = sizeof(sockaddr_in);
  if (family == AF_INET6) {
    ::setsockopt(out.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    auto* address = reinterpret_cast<sockaddr_in6*>(&any);
    address->sin6_addr = in6addr_any;
    address->sin6_port = htons(static_cast<uint16_t>(port));
    length = sizeof(sockaddr_in6);
  } else {
    auto* address = reinterpret_cast<sockaddr_in*>(&any);
    address->sin_addr.s_addr = htonl(INADDR_ANY);
    address->sin_port = htons(static_cast<uint16_t>(port));
  }
  if (::bind(out.descriptor(), reinterpret_cast<sockaddr*>(&any), length) == 0 &&
      ::listen(out.descriptor(), SOMAXCONN) == 0)
    return out;
  fault = std::strerror(errno);
  return Socket();
}

// Sends or receives `size` bytes; `most` is the limit for each part.
template <class Move>
bool move_all(const Socket& socket, short event, size_t size, std::chrono::milliseconds most, Move move) {
  for (size_t done = 0; done < size;) {
    if (!is_ready(socket.descriptor(), event, most)) return false;
    const ssize_t count = move(done, size - done);
    if (count > 0) done += static_cast<size_t>(count);
    if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) return false;
  }
  return true;
}

bool receive_bytes(const Socket& socket, char* bytes, size_t size, std::chrono::milliseconds most) {
  return move_all(socket, POLLIN, size, most, [&](size_t done, size_t left) {
    return ::recv(socket.descriptor(), bytes + done, left, MSG_DONTWAIT);
  });
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int Socket::port() const {
  const sockaddr_storage own = own_side(descriptor_);
  return ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(own).sin6_port
                                         : reinterpret_cast<const sockaddr_in&>(own).sin_port);
}

std::string Socket::own_address() const {
  const sockaddr_storage own = own_side(descriptor_);
  char host[NI_MAXHOST] = {};
  const socklen_t length = own.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&own), length, host, sizeof host, nullptr, 0,
                NI_NUMERICHOST);
  const std::string text = host, mapped = "::ffff:";
  return text.starts_with(mapped) && text.find('.') != text.npos ? text.substr(mapped.size()) : text;
}

std::vector<Address> resolve(const std::string& host, int port, std::string& fault) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV;
  const int failure = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (failure != 0) {
    fault = ::gai_strerror(failure);
    return {};
  }
  std::vector<Address> out;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    Address& address = out.emplace_back();
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    address.length = each->ai_addrlen;
  }
  ::freeaddrinfo(found);
  return out;
}

Socket connect_to(const std::vector<Address>& addresses, std::chrono::milliseconds most, std::string& fault) {
  for (const Address& address : addresses) {
    Socket out = connect_one(address, most, fault);
    if (out.is_open()) return out;
  }
  return Socket();
}

Socket listen_on(int port, std::string& fault) {
  Socket out = listening(AF_INET6, port, fault);
  return out.is_open() ? std::move(out) : listening(AF_INET, port, fault);
}

std::string with_length(const std::string& bytes) {
  const uint32_t length = htonl(static_cast<uint32_t>(bytes.size()));
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + bytes;
}

size_t length_of(const char* bytes) {
  uint32_t length = 0;
  std::memcpy(&length, bytes, sizeof length);
  return ntohl(length);
}

bool send_message(const Socket& socket, const std::string& bytes, std::chrono::milliseconds most) {
  const std::string whole = with_length(bytes);
  return move_all(socket, POLLOUT, whole.size(), most, [&](size_t done, size_t left) {
    return ::send(socket.descriptor(), whole.data() + done, left, MSG_NOSIGNAL | MSG_DONTWAIT);
  });
}

bool receive_message(const Socket& socket, std::string& bytes, std::chrono::milliseconds most) {
  char head[kLengthBytes];
  if (!receive_bytes(socket, head, sizeof head, most)) return false;
  const size_t length = length_of(head);
  if (length > kLongestMessage) return false;
  bytes.resize(length);
  return receive_bytes(socket, bytes.data(), length, most);
}

}  // namespace heddle::mesh

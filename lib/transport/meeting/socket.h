// TCP sockets with deadlines, and numeric addresses.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/export.h"

namespace heddle::mesh {

// A file descriptor of a socket, closed with this object.
class HEDDLE_API Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  ~Socket();
  Socket(Socket&& from) noexcept : descriptor_(std::exchange(from.descriptor_, -1)) {}
  Socket& operator=(Socket&& from) noexcept {
    std::swap(descriptor_, from.descriptor_);
    return *this;
  }
  int descriptor() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  int port() const;  // of this side

  // The numeric address of this side, as the connection was routed: "10.0.0.3", "fe80::1%eth0".
  std::string own_address() const;

 private:
  int descriptor_;
};

// An address of a host, as getaddrinfo() finds it.
struct Address {
  sockaddr_storage storage = {};
  socklen_t length = 0;
};

// Blocks as long as the name server does. `fault` says why a name has no address.
HEDDLE_API std::vector<Address> resolve(const std::string& host, int port, std::string& fault);

// Connects to the first address that accepts within `most`; a closed Socket with `fault` if none does.
HEDDLE_API Socket connect_to(const std::vector<Address>& addresses, std::chrono::milliseconds most,
                             std::string& fault);

// Listens on every interface, with IPv6 and IPv4 where both exist; port 0: any free one. A closed Socket with
// `fault` if the port is taken.
HEDDLE_API Socket listen_on(int port, std::string& fault);

// A message is its length and its bytes. false: the connection broke, or `most` passed without progress.
HEDDLE_API bool send_message(const Socket& socket, const std::string& bytes, std::chrono::milliseconds most);
HEDDLE_API bool receive_message(const Socket& socket, std::string& bytes, std::chrono::milliseconds most);

std::string with_length(const std::string& bytes);
constexpr size_t kLengthBytes = 4;
constexpr size_t kLongestMessage = size_t{256} << 20;
size_t length_of(const char* bytes);

}  // namespace heddle::mesh

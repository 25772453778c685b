// Addresses that mean the machine itself.
#pragma once

#include <string>

namespace heddle {

inline bool is_loopback(const std::string& host) {
  return host == "localhost" || host.starts_with("127.") || host == "::1";
}

}  // namespace heddle

// A connection to the store of rank 0, with the interface of LibTorch's stores, which Gloo needs.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "heddle/base/export.h"
#include "lib/transport/meeting/socket.h"
#include "lib/transport/meeting/store_server.h"

namespace heddle::mesh {

// Requests of several threads use the connection in turn; a wait holds it for at most half a second at a
// time.
class HEDDLE_API StoreClient : public c10d::Store {
 public:
  using Words = std::vector<std::string>;

  // Connects to the first address that answers as a store of heddle, within `most`. Throws
  // std::runtime_error. timeout: of an answer.
  StoreClient(std::vector<Address> addresses, Greeting greeting, std::chrono::milliseconds most,
              std::chrono::milliseconds timeout);

  // A request and its answer. wait: how long the server may take besides.
  Words ask(const Words& request, std::chrono::milliseconds wait = {});

  // Ends every request, also one under way, with an error; safe to call from any thread.
  void close();

  const std::string& server_id() const { return server_id_; }
  const std::string& server_host() const { return server_host_; }
  int server_process() const { return server_process_; }
  std::string own_address() const { return socket_.own_address(); }  // on the way to rank 0

  // Another connection. Throws std::runtime_error if it is not there within `most`.
  c10::intrusive_ptr<StoreClient> connect_again(Greeting::Role role, std::chrono::milliseconds most);
  c10::intrusive_ptr<Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;  // waits for the key
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<uint8_t>>& values) override;
  bool hasExtendedApi() const override { return true; }

 private:
  Words values_of(const std::vector<std::string>& keys, std::chrono::milliseconds timeout);

  std::vector<Address> addresses_;  // the one that answered, once it has
  const Greeting greeting_;
  Socket socket_;
  std::mutex mutex_;
  std::string server_id_, server_host_;
  int server_process_ = 0;
};

}  // namespace heddle::mesh

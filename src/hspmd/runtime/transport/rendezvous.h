// Rendezvous: what the processes of a run need before they share memory, and when one of them fails. A control plane
// stands behind it.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace hspmd {

using AbortCallback = std::function<void(const std::string& reason)>;

// Who wants to hear of an abort. Any thread may use it.
class AbortSubscribers {
 public:
  int add(AbortCallback callback);
  void remove(int subscription);
  // Once; the first reason stays.
  void tell(const std::string& reason);

 private:
  std::mutex lock_;
  std::map<int, AbortCallback> callbacks_;
  std::optional<std::string> reason_;
  int next_ = 0;
};

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int ranks() const = 0;
  // Everybody's value, by rank. A name is used once. Throws RuntimeFailure when somebody is missing in time (it names
  // who), or when the job is aborted.
  virtual std::vector<std::string> all_gather(const std::string& name, const std::string& value) = 0;
  // Ends the job for everybody.
  virtual void abort(const std::string& reason) = 0;
  // Calls back once, from another thread, when anybody aborts or is lost; at once if that was before. Returns what
  // `forget` takes: after that it calls no more, and no call is under way.
  virtual int on_abort(AbortCallback callback) = 0;
  virtual void forget(int subscription) = 0;
};

}  // namespace hspmd

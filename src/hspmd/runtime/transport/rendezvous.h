// Rendezvous: what the processes of a run need before they share memory, and when one of them fails. A control plane
// stands behind it.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace hspmd {

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
  // Calls back from another thread when anybody aborts or is lost; at once if that was before. An empty function: no
  // more.
  virtual void on_abort(std::function<void(const std::string&)> callback) = 0;
};

}  // namespace hspmd

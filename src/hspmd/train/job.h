// JoinedJob: this process's place among the processes of a run, and its way to meet them.
//
//   hspmd launch -n 4 -- train run.yaml     sets all of it for every rank
//   torchrun, mpirun, a batch system        set RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (or Open MPI's variables for
//                                           the first two); the user exports HSPMD_TOKEN. Rank 0 then hosts the control
//                                           plane, on MASTER_ADDR, at the port after MASTER_PORT.
//
// Nothing here waits for ever: a rank that does not come is named when the time is up.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hspmd/control/control_client.h"
#include "hspmd/control/control_server.h"
#include "hspmd/runtime/transport/rendezvous.h"

namespace hspmd {

struct JobPlace {
  int rank = 0;
  int ranks = 1;
  std::string host;  // of the control plane
  int port = 0;
  bool hosted = false;  // somebody hosts the control plane already
  std::string token;
  double timeout_s = 60;  // HSPMD_TIMEOUT_S
};

// Nullopt where no launcher says anything. Throws InvalidArgument where it says half, or there is no token.
[[nodiscard]] std::optional<JobPlace> job_from_environment();

class JoinedJob final : public Rendezvous {
 public:
  // Joins. Throws InvalidArgument: a host that has no address, a wrong token or number of ranks, a rank that is there
  // already, a port in use; RuntimeFailure when nobody answers.
  explicit JoinedJob(const JobPlace& place);
  ~JoinedJob() override;

  [[nodiscard]] int rank() const override { return place_.rank; }
  [[nodiscard]] int ranks() const override { return place_.ranks; }
  std::vector<std::string> all_gather(const std::string& name, const std::string& value) override;
  void abort(const std::string& reason) override;
  int on_abort(AbortCallback callback) override { return subscribers_.add(std::move(callback)); }
  void forget(int subscription) override { subscribers_.remove(subscription); }

  // Asks everybody to stop after a step: all then see it once they have finished that step, since none finishes it
  // without the one that asks.
  void stop_after(std::int64_t step);
  [[nodiscard]] bool stops_after(std::int64_t step);
  // Throws InvalidArgument, on all ranks, unless everybody brings the same: {"the strategy", its digest}, ...
  void agree(const std::vector<std::pair<std::string, std::string>>& inputs);

 private:
  JobPlace place_;
  AbortSubscribers subscribers_;
  std::unique_ptr<ControlServer> server_;
  std::unique_ptr<ControlClient> client_;
};

// Of a file's bytes, or of a text: equal where the bytes are.
[[nodiscard]] std::string digest_of_file(const std::string& path);
[[nodiscard]] std::string digest_of(std::string_view bytes);

}  // namespace hspmd

// Launcher: starts the ranks of a job, one process each, and sees them to their end.
//
//   launch({.ranks = 4, .command = {"train", "run.yaml"}})         four times this program, on this host
//   launch({.ranks = 8, .hosts = {{"a", 4}, {"b", 4}}, .listen = "10.0.0.1", ...})       through ssh
//
// It hosts the control plane, gives every rank RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and HSPMD_TOKEN,
// prefixes its output by rank (or writes it into files), and forwards SIGINT, SIGTERM, SIGUSR1. When one rank fails,
// all are ended: asked by the control plane, then by SIGTERM, then killed. No child outlives it: should it be killed
// itself, the kernel kills the children of this host, and the ranks of others lose their control plane.
//
// The token is in the environment, never on a command line: on another host a shell reads variables and command from
// its standard input, so --remote may be anything that runs a program there: ssh, `ip netns exec {host} {command}`.
#pragma once

#include <string>
#include <vector>

namespace hspmd {

struct HostSlots {
  std::string name;
  int slots = 1;
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

struct LaunchOptions {
  int ranks = 1;
  std::vector<HostSlots> hosts = {};   // empty: all on this one
  std::vector<std::string> cpus = {};  // by rank, such as "0-3,8"; empty: wherever the system puts them
  std::string log_dir = {};            // rank-N.log there, in place of prefixed output
  std::string listen = "127.0.0.1";    // the control plane's address; other hosts must reach it
  std::string interface = {};          // the network between hosts
  std::string remote = "ssh -o BatchMode=yes {host} {command}";  // how a command runs on another host
  double grace_s = 5;                                            // from asking to end until SIGTERM, and on to SIGKILL
  std::vector<std::string> command = {};                         // the program's arguments
};

// "a:4,b:4", "0;1;2-3". Throw InvalidArgument.
[[nodiscard]] std::vector<HostSlots> parse_hosts(const std::string& text);
[[nodiscard]] std::vector<std::string> parse_cpus(const std::string& text);

// Runs the job to its end and returns the worst exit code of a rank: of those that ended by themselves the greatest,
// 128 + N for one that signal N killed. Throws InvalidArgument: hosts or cpus that do not fit the ranks, an address
// that is not this host's, a folder that cannot be written; RuntimeFailure when a process cannot be started.
int launch(const LaunchOptions& options);

}  // namespace hspmd

// Cluster: the devices there are, how fast they compute, and the links between them.
//
//   two nodes of two devices, 400 GB/s inside, a 50 GB/s NIC a node:
//     device 0 -> 1   link of node a
//     device 0 -> 2   NIC of a (out), NIC of b (in): shared by all devices of the node, full rate each way
//
// Devices are numbered in the order of the nodes. Without a cluster file: one node, 100 GB/s, 1 us.
// GB is 1e9 bytes, GiB 2^30. Source: the file format `hspmd-cluster/1` (docs/formats.md).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace hspmd {

class ConfigNode;

struct Link {
  double bytes_per_s = 100e9;
  double latency_s = 1e-6;
  friend bool operator==(const Link&, const Link&) = default;
};

struct DeviceType {
  std::string name = {};
  std::map<std::string, double> peak_flops = {};  // by precision ("bf16", "fp32", "fp64"), flop/s
  double memory_bytes = 0;                        // 0: not limited
  double memory_bytes_per_s = 0;                  // 0: not modelled
  friend bool operator==(const DeviceType&, const DeviceType&) = default;
};

struct ClusterNode {
  std::string name = {};
  int type = 0;  // index into Cluster::types
  int devices = 0;
  Link link = {};  // joins the devices of the node pairwise
  Link nic = {};   // shared by the node, full rate in each direction
  friend bool operator==(const ClusterNode&, const ClusterNode&) = default;
};

class Cluster {
 public:
  // Throws InvalidArgument unless every node has a known type, at least one device and links with a bandwidth; at most
  // 2^20 devices in all.
  Cluster(std::vector<DeviceType> types, std::vector<ClusterNode> nodes);

  // One node of `devices` devices without speed or memory limits, 100 GB/s, 1 us.
  [[nodiscard]] static Cluster uniform(int devices);

  [[nodiscard]] int device_count() const { return static_cast<int>(node_of_device_.size()); }
  [[nodiscard]] const std::vector<DeviceType>& types() const { return types_; }
  [[nodiscard]] const std::vector<ClusterNode>& nodes() const { return nodes_; }
  // Devices beyond the cluster belong to its last node: a plan may name devices that no file describes.
  [[nodiscard]] int node_of(int device) const;
  [[nodiscard]] const DeviceType& type_of(int device) const;
  // The slower of what a transfer between the two passes through (bandwidth the least, latencies the greatest).
  [[nodiscard]] Link between(int a, int b) const;

  friend bool operator==(const Cluster&, const Cluster&) = default;

 private:
  std::vector<DeviceType> types_;
  std::vector<ClusterNode> nodes_;
  std::vector<int> node_of_device_;
};

// Reads and writes `hspmd-cluster/1`. Throws InvalidArgument with file, line, key, value and what is allowed.
[[nodiscard]] Cluster read_cluster(const ConfigNode& root);
[[nodiscard]] Cluster load_cluster(const std::string& path);
[[nodiscard]] Cluster parse_cluster(const std::string& text, const std::string& file_name);
[[nodiscard]] std::string to_string(const Cluster& cluster);

}  // namespace hspmd

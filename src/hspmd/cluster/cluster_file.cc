// `hspmd-cluster/1`: reading and writing.
#include <sstream>
#include <string_view>

#include "hspmd/base/errors.h"
#include "hspmd/cluster/cluster.h"
#include "hspmd/config/config_node.h"

namespace hspmd {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

Link read_link(const ConfigNode& node) {
  node.expect_keys({"gb_per_s", "latency_us"});
  Link link;
  link.bytes_per_s = node.at("gb_per_s").scaled(1e-6, 1e9, 9);
  link.latency_s = node.at("latency_us").scaled(0, 1e9, -6);
  return link;
}

DeviceType read_type(const std::string& name, const ConfigNode& node) {
  node.expect_keys({"peak_tflops", "memory_gib", "memory_gb_per_s"});
  DeviceType type;
  type.name = name;
  const ConfigNode peaks = node.at("peak_tflops");
  peaks.expect_keys({"bf16", "fp32", "fp64"});
  for (const std::string& precision : peaks.keys())
    type.peak_flops[precision] = peaks.at(precision).scaled(1e-9, 1e9, 12);
  if (const auto memory = node.find("memory_gib")) type.memory_bytes = memory->number(1e-6, 1e9) * kGiB;
  if (const auto bandwidth = node.find("memory_gb_per_s")) type.memory_bytes_per_s = bandwidth->scaled(1e-6, 1e9, 9);
  return type;
}

}  // namespace

Cluster read_cluster(const ConfigNode& root) {
  expect_format(root, "hspmd-cluster/1");
  root.expect_keys({"format", "device_types", "nodes"});
  std::vector<DeviceType> types;
  const ConfigNode named = root.at("device_types");
  const std::vector<std::string> names = named.keys();
  for (const std::string& name : names) types.push_back(read_type(name, named.at(name)));
  const std::vector<std::string_view> known(names.begin(), names.end());
  std::vector<ClusterNode> nodes;
  for (const ConfigNode& item : root.at("nodes").list()) {
    item.expect_keys({"name", "type", "devices", "link", "nic"});
    ClusterNode node;
    node.name = item.at("name").text();
    const std::string type = item.at("type").choice(known);
    while (types[static_cast<std::size_t>(node.type)].name != type) ++node.type;
    node.devices = static_cast<int>(item.at("devices").integer(1, 1 << 20));
    if (const auto link = item.find("link")) node.link = read_link(*link);
    node.nic = node.link;
    if (const auto nic = item.find("nic")) node.nic = read_link(*nic);
    nodes.push_back(std::move(node));
  }
  return {std::move(types), std::move(nodes)};
}

Cluster load_cluster(const std::string& path) {
  return read_cluster(load_config(path));
}
Cluster parse_cluster(const std::string& text, const std::string& file_name) {
  return read_cluster(parse_config(text, file_name));
}

std::string to_string(const Cluster& cluster) {
  std::string text = "format: hspmd-cluster/1\ndevice_types:\n";
  for (const DeviceType& type : cluster.types()) {
    std::string peaks;
    for (const auto& [precision, flops] : type.peak_flops)
      peaks += fmt::format("{}{}: {}", peaks.empty() ? "" : ", ", precision, number_text(flops, -12));
    text += fmt::format("  {}: {{peak_tflops: {{{}}}", word_text(type.name), peaks);
    if (type.memory_bytes > 0) text += fmt::format(", memory_gib: {}", number_text(type.memory_bytes / kGiB));
    if (type.memory_bytes_per_s > 0)
      text += fmt::format(", memory_gb_per_s: {}", number_text(type.memory_bytes_per_s, -9));
    text += "}\n";
  }
  text += "nodes:\n";
  const auto link = [](const Link& l) {
    return fmt::format("{{gb_per_s: {}, latency_us: {}}}", number_text(l.bytes_per_s, -9), number_text(l.latency_s, 6));
  };
  for (const ClusterNode& node : cluster.nodes()) {
    text += fmt::format("  - {{name: {}, type: {}, devices: {}, link: {}, nic: {}}}\n", word_text(node.name),
                        word_text(cluster.types()[static_cast<std::size_t>(node.type)].name), node.devices,
                        link(node.link), link(node.nic));
  }
  return text;
}

}  // namespace hspmd

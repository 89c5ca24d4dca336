#include "hspmd/train/job.h"

#include <netdb.h>

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "hspmd/base/errors.h"
#include "hspmd/base/hash.h"

namespace hspmd {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::int64_t number_in(const std::string& name, const std::string& text, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most)
    invalid("[job] {} must be a whole number from {} to {}. Received \"{}\".", name, least, most, text);
  return value;
}

// The first of the variables that is set.
struct Named {
  std::string name;
  std::string value;
};
std::optional<Named> first_of(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (auto value = variable(name)) return Named{name, *value};
  }
  return std::nullopt;
}

void check_resolves(const std::string& host) {
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, nullptr, &found);
  if (found != nullptr) freeaddrinfo(found);
  if (error != 0)
    invalid("[job] MASTER_ADDR must be the address of rank 0's host. Received \"{}\": {}.", host, gai_strerror(error));
}

}  // namespace

std::optional<JobPlace> job_from_environment() {
  constexpr int kMostRanks = 1 << 16;
  const auto rank = first_of({"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"});
  const auto ranks = first_of({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
  if (!rank && !ranks) return std::nullopt;
  if (!rank || !ranks)
    invalid("[job] RANK and WORLD_SIZE must be set both or none. Only {} is.", rank ? "RANK" : "WORLD_SIZE");
  JobPlace place;
  place.ranks = static_cast<int>(number_in(ranks->name, ranks->value, 1, kMostRanks));
  place.rank = static_cast<int>(number_in(rank->name, rank->value, 0, place.ranks - 1));
  const auto host = variable("MASTER_ADDR");
  const auto port = variable("MASTER_PORT");
  if (!host || !port)
    invalid("[job] MASTER_ADDR and MASTER_PORT must say where rank 0 is. {} is not set.",
            host ? "MASTER_PORT" : "MASTER_ADDR");
  place.host = *host;
  place.hosted = variable("HSPMD_CONTROL").has_value();
  constexpr int kMostPorts = 65535;
  place.port = static_cast<int>(number_in("MASTER_PORT", *port, 1, kMostPorts - (place.hosted ? 0 : 1)));
  if (!place.hosted) ++place.port;  // the launcher may use its own
  const auto token = variable("HSPMD_TOKEN");
  if (!token)
    invalid(
        "[job] HSPMD_TOKEN must be set to a secret that all ranks of the job share; hspmd launch makes one, under "
        "other "
        "launchers export it, such as: export HSPMD_TOKEN=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \\n')");
  place.token = *token;
  if (const auto timeout = variable("HSPMD_TIMEOUT_S"))
    place.timeout_s = static_cast<double>(number_in("HSPMD_TIMEOUT_S", *timeout, 1, 1000000));
  return place;
}

JoinedJob::JoinedJob(const JobPlace& place) : place_(place) {
  check_resolves(place.host);
  if (place.rank == 0 && !place.hosted) {
    ControlOptions options;
    options.listen = place.host;
    options.port = place.port;
    options.token = place.token;
    options.ranks = place.ranks;
    server_ = std::make_unique<ControlServer>(options);
  }
  ClientOptions options;
  options.address = fmt::format("{}:{}", place.host, place.port);
  options.token = place.token;
  options.rank = place.rank;
  options.ranks = place.ranks;
  options.timeout = std::chrono::duration<double>(place.timeout_s);
  client_ = std::make_unique<ControlClient>(options);
  client_->on_abort([this](const std::string& reason) { subscribers_.tell(reason); });
}

JoinedJob::~JoinedJob() {
  client_->leave();
  client_.reset();
  if (!server_) return;
  // Rank 0 hosts the control plane until all have gone, but not for ever.
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(place_.timeout_s);
  const auto here = [&] {
    for (const Member& member : server_->members()) {
      if (member.state == MemberState::kJoined) return true;
    }
    return false;
  };
  while (here() && !server_->aborted() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

std::vector<std::string> JoinedJob::all_gather(const std::string& name, const std::string& value) {
  return client_->all_gather(name, value);
}

void JoinedJob::abort(const std::string& reason) {
  client_->abort(reason);
}

void JoinedJob::stop_after(std::int64_t step) {
  client_->set("stop", std::to_string(step));
}

bool JoinedJob::stops_after(std::int64_t step) {
  const auto last = client_->check("stop");
  return last && std::strtoll(last->c_str(), nullptr, 10) <= step;
}

void JoinedJob::agree(const std::vector<std::pair<std::string, std::string>>& inputs) {
  std::string mine;
  for (const auto& [what, digest] : inputs) mine += fmt::format("{}={}\n", what, digest);
  const std::vector<std::string> all = all_gather("inputs", mine);
  std::vector<std::string> differ;
  for (const auto& input : inputs) {
    const std::string& what = input.first;
    const auto line_of = [&](const std::string& text) {
      const std::size_t begin = text.find(what + "=");
      return begin == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
    };
    std::vector<int> ranks;
    for (std::size_t r = 1; r < all.size(); ++r) {
      if (line_of(all[r]) != line_of(all[0])) ranks.push_back(static_cast<int>(r));
    }
    if (!ranks.empty()) differ.push_back(fmt::format("{} (rank {})", what, fmt::join(ranks, ", ")));
  }
  if (!differ.empty())
    invalid(
        "[job] all ranks must run the same program on the same inputs. Others than rank 0's: {}. Give every rank the "
        "same files and flags.",
        fmt::join(differ, "; "));
}

std::string digest_of(std::string_view bytes) {
  return fmt::format("{:016x}", fnv1a(bytes));
}

std::string digest_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "unreadable";
  std::uint64_t hash = kFnv1aStart;
  std::vector<char> block(1 << 16);
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())), file.gcount() > 0)
    hash = fnv1a({block.data(), static_cast<std::size_t>(file.gcount())}, hash);
  return fmt::format("{:016x}", hash);
}

}  // namespace hspmd

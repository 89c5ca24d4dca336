#include "hspmd/elastic/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>

#include "hspmd/base/errors.h"
#include "hspmd/control/control_server.h"

extern char** environ;

namespace hspmd {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

std::optional<int> whole_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// "0-3,8".
cpu_set_t cpu_set(const std::string& text) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const std::string& range : split(text, ',')) {
    const std::vector<std::string> ends = split(range, '-');
    const auto first = whole_number(ends.front());
    const auto last = whole_number(ends.back());
    if (!first || !last || ends.size() > 2 || *first > *last || *last >= CPU_SETSIZE)
      invalid("[launch] --cpus must give each rank a list of CPUs, such as \"0-3;4-7\". Received \"{}\".", text);
    for (int cpu = *first; cpu <= *last; ++cpu) CPU_SET(static_cast<unsigned>(cpu), &set);
  }
  cpu_set_t allowed;
  sched_getaffinity(0, sizeof(allowed), &allowed);
  cpu_set_t both;
  CPU_AND(&both, &allowed, &set);
  if (CPU_COUNT(&both) == 0)
    invalid("[launch] --cpus must name CPUs that this process may use. Received \"{}\".", text);
  return set;
}

// One shell word.
std::string shell_word(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

// Signals that came, for the loop to forward.
std::atomic<int> pending_signal{0};
void on_signal(int signal) {
  pending_signal = signal;
}

struct Stream {
  int file = -1;
  std::string line;  // not ended yet
};

struct Rank {
  int number = 0;
  int local = 0;
  std::string host;  // empty: this one
  pid_t process = -1;
  std::optional<int> code;
  bool ended_by_us = false;
  std::vector<Stream> streams;  // standard output and error
  int log = -1;
};

class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options) : options_(options) { place_ranks(); }

  ~Launcher() {
    for (Rank& rank : ranks_) {
      if (rank.process > 0 && !rank.code) {
        kill(-rank.process, SIGKILL);
        waitpid(rank.process, nullptr, 0);
      }
      for (Stream& stream : rank.streams) close(stream.file);
      if (rank.log >= 0) close(rank.log);
    }
  }

  int run() {
    ControlOptions control;
    control.listen = options_.listen;
    control.token = token();
    control.ranks = options_.ranks;
    server_ = std::make_unique<ControlServer>(control);
    token_ = control.token;
    forward_signals();
    for (Rank& rank : ranks_) start(rank);
    while (!all_ended()) {
      pass_signal_on();
      read_output(std::chrono::milliseconds(20));
      reap();
      end_others_when_one_failed();
    }
    drain();
    return worst_code();
  }

 private:
  void place_ranks() {
    if (options_.ranks < 1) invalid("[launch] -n must be at least 1. Received {}.", options_.ranks);
    if (options_.command.empty())
      invalid("[launch] a command must follow, such as: hspmd launch -n 4 -- train run.yaml");
    if (!options_.cpus.empty() && options_.cpus.size() != static_cast<std::size_t>(options_.ranks))
      invalid("[launch] --cpus must have a list for each of the {} ranks. Received {}.", options_.ranks,
              options_.cpus.size());
    for (const std::string& cpus : options_.cpus) affinities_.push_back(cpu_set(cpus));
    const int slots = std::accumulate(options_.hosts.begin(), options_.hosts.end(), 0,
                                      [](int sum, const HostSlots& host) { return sum + host.slots; });
    if (!options_.hosts.empty() && slots != options_.ranks)
      invalid("[launch] the hosts' slots must add up to the {} ranks. Received {}.", options_.ranks, slots);
    if (!options_.log_dir.empty()) make_log_dir();
    std::vector<HostSlots> hosts = options_.hosts;
    if (hosts.empty()) hosts.push_back({"", options_.ranks});
    for (const HostSlots& host : hosts) {
      for (int local = 0; local < host.slots; ++local) {
        Rank rank;
        rank.number = static_cast<int>(ranks_.size());
        rank.local = local;
        rank.host = host.name == "localhost" ? "" : host.name;
        ranks_.push_back(std::move(rank));
      }
    }
  }

  void make_log_dir() const {
    std::error_code error;
    std::filesystem::create_directories(options_.log_dir, error);
    if (error || access(options_.log_dir.c_str(), W_OK) != 0)
      invalid("[launch] --log-dir must be a folder that can be written. Received \"{}\".", options_.log_dir);
  }

  // A token of the user's own is kept, so that ranks may also be started by hand.
  static std::string token() {
    const char* given = std::getenv("HSPMD_TOKEN");
    return given != nullptr && *given != '\0' ? given : make_token();
  }

  static void forward_signals() {
    struct sigaction action {};
    action.sa_handler = on_signal;
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaction(signal, &action, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
  }

  // ---- starting ----

  std::vector<std::pair<std::string, std::string>> variables(const Rank& rank) const {
    std::vector<std::pair<std::string, std::string>> list = {{"RANK", std::to_string(rank.number)},
                                                             {"WORLD_SIZE", std::to_string(options_.ranks)},
                                                             {"LOCAL_RANK", std::to_string(rank.local)},
                                                             {"MASTER_ADDR", options_.listen},
                                                             {"MASTER_PORT", std::to_string(server_->port())},
                                                             {"HSPMD_CONTROL", server_->address()}};
    if (!options_.interface.empty()) list.emplace_back("HSPMD_INTERFACE", options_.interface);
    return list;
  }

  static std::string program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

  // What a shell on another host reads from its standard input: no command line holds the token, and nothing has to
  // survive the quoting of ssh and the like.
  std::string remote_script(const Rank& rank) const {
    std::string script = "export HSPMD_TOKEN=" + shell_word(token_);
    for (const auto& [name, value] : variables(rank)) script += " " + name + "=" + shell_word(value);
    script +=
        "\ncd " + shell_word(std::filesystem::current_path().string()) + " || exit 1\nexec " + shell_word(program());
    for (const std::string& word : options_.command) script += " " + shell_word(word);
    return script + "\n";
  }

  std::string remote_line(const Rank& rank) const {
    return "exec " + replaced(replaced(options_.remote, "{host}", shell_word(rank.host)), "{command}", "sh");
  }

  void start(Rank& rank) {
    std::vector<std::string> words;
    std::vector<std::string> environment;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      if (!std::string_view(*entry).starts_with("HSPMD_TOKEN=")) environment.emplace_back(*entry);
    }
    const bool remote = !rank.host.empty();
    if (remote) {
      words = {"/bin/sh", "-c", remote_line(rank)};
    } else {
      words = options_.command;
      words.insert(words.begin(), program());
      for (const auto& [name, value] : variables(rank)) {
        std::erase_if(environment, [&](const std::string& e) { return e.starts_with(name + "="); });
        environment.push_back(name + "=" + value);
      }
      environment.push_back("HSPMD_TOKEN=" + token_);
    }
    spawn(rank, words, environment, remote);
  }

  struct Pipe {
    int read = -1;
    int write = -1;
  };
  static Pipe make_pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw RuntimeFailure(fmt::format("[launch] no pipe: {}", std::strerror(errno)));
    return {ends[0], ends[1]};
  }

  static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> list;
    for (std::string& text : texts) list.push_back(text.data());
    list.push_back(nullptr);
    return list;
  }

  // Between fork and exec only calls that are safe there: the control plane's threads run already.
  void spawn(Rank& rank, std::vector<std::string> words, std::vector<std::string> environment, bool remote) {
    const std::vector<char*> arguments = pointers(words);
    const std::vector<char*> variables = pointers(environment);
    const Pipe input = make_pipe(), output = make_pipe(), errors = make_pipe();
    const pid_t launcher = getpid();
    const pid_t child = fork();
    if (child < 0)
      throw RuntimeFailure(fmt::format("[launch] rank {} cannot be started: {}", rank.number, std::strerror(errno)));
    if (child == 0) {
      setpgid(0, 0);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != launcher) _exit(1);
      if (!affinities_.empty() && !remote)
        sched_setaffinity(0, sizeof(cpu_set_t), &affinities_[static_cast<std::size_t>(rank.number)]);
      dup2(input.read, STDIN_FILENO);
      dup2(output.write, STDOUT_FILENO);
      dup2(errors.write, STDERR_FILENO);
      for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGPIPE}) std::signal(signal, SIG_DFL);
      execve(arguments[0], arguments.data(), variables.data());
      _exit(127);
    }
    setpgid(child, child);
    rank.process = child;
    close(input.read);
    close(output.write);
    close(errors.write);
    if (remote) {
      const std::string script = remote_script(rank);
      [[maybe_unused]] const auto sent = write(input.write, script.data(), script.size());
    }
    close(input.write);
    for (const int file : {output.read, errors.read}) {
      fcntl(file, F_SETFL, O_NONBLOCK);
      rank.streams.push_back({file, ""});
    }
    if (!options_.log_dir.empty()) {
      const std::string path = fmt::format("{}/rank-{}.log", options_.log_dir, rank.number);
      rank.log = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
      if (rank.log < 0)
        throw RuntimeFailure(fmt::format("[launch] {} cannot be written: {}", path, std::strerror(errno)));
    }
  }

  // ---- output ----

  void read_output(std::chrono::milliseconds most) {
    std::vector<pollfd> polled;
    for (const Rank& rank : ranks_) {
      for (const Stream& stream : rank.streams) {
        if (stream.file >= 0) polled.push_back({stream.file, POLLIN, 0});
      }
    }
    poll(polled.data(), polled.size(), static_cast<int>(most.count()));
    for (Rank& rank : ranks_) {
      for (std::size_t s = 0; s < rank.streams.size(); ++s) read_stream(rank, s);
    }
  }

  void read_stream(Rank& rank, std::size_t s) {
    Stream& stream = rank.streams[s];
    char block[4096];
    while (stream.file >= 0) {
      const ssize_t n = read(stream.file, block, sizeof(block));
      if (n < 0) return;  // nothing now
      if (n == 0) {
        close(stream.file);
        stream.file = -1;
        if (!stream.line.empty()) put(rank, s, stream.line + "\n");
        stream.line.clear();
        return;
      }
      stream.line.append(block, static_cast<std::size_t>(n));
      for (std::size_t end = stream.line.find('\n'); end != std::string::npos; end = stream.line.find('\n')) {
        put(rank, s, stream.line.substr(0, end + 1));
        stream.line.erase(0, end + 1);
      }
      constexpr std::size_t kLongest = 1 << 16;  // a line without end goes out in pieces
      if (stream.line.size() > kLongest) {
        put(rank, s, stream.line + "\n");
        stream.line.clear();
      }
    }
  }

  void put(const Rank& rank, std::size_t stream, const std::string& line) const {
    const int file = rank.log >= 0 ? rank.log : stream == 0 ? STDOUT_FILENO : STDERR_FILENO;
    const std::string text = rank.log >= 0 ? line : fmt::format("[{}] {}", rank.number, line);
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t n = write(file, text.data() + at, text.size() - at);
      if (n <= 0) return;  // a closed terminal or a full disk is not the job's fault
      at += static_cast<std::size_t>(n);
    }
  }

  void drain() {
    for (int i = 0; i < 10; ++i) {
      const bool open = std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
        return std::any_of(rank.streams.begin(), rank.streams.end(), [](const Stream& s) { return s.file >= 0; });
      });
      if (!open) return;
      read_output(std::chrono::milliseconds(10));
    }
  }

  // ---- the end ----

  [[nodiscard]] bool all_ended() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.code.has_value(); });
  }

  void signal_all(int signal) const {
    for (const Rank& rank : ranks_) {
      if (!rank.code) kill(-rank.process, signal);
    }
  }

  void pass_signal_on() {
    const int signal = pending_signal.exchange(0);
    if (signal == 0) return;
    const bool again = signal != SIGUSR1 && interrupted_;
    interrupted_ = interrupted_ || signal != SIGUSR1;
    killing_ = killing_ || again;
    signal_all(again ? SIGKILL : signal);
  }

  // How a rank ended.
  static std::string ending(int status) {
    if (WIFEXITED(status)) return fmt::format("ended with exit code {}", WEXITSTATUS(status));
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  }

  void reap() {
    for (Rank& rank : ranks_) {
      if (rank.code) continue;
      int status = 0;
      if (waitpid(rank.process, &status, WNOHANG) != rank.process) continue;
      constexpr int kSignalled = 128;
      rank.code = WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status);
      rank.ended_by_us = asked_ || killing_;
      kill(-rank.process, SIGKILL);  // what it left behind
      if (*rank.code != 0 && !failed_at_) {
        failed_at_ = Clock::now();
        // Its own words come first; the others are told if it has not told them itself.
        if (interrupted_) continue;
        const std::string what = fmt::format("rank {} {}", rank.number, ending(status));
        fmt::print(stderr, "hspmd: [launch] {}; ending the others\n", what);
        server_->abort(what);
      }
    }
  }

  void end_others_when_one_failed() {
    if (!failed_at_) return;
    const std::chrono::duration<double> since = Clock::now() - *failed_at_;
    if (since.count() > 2 * options_.grace_s) {
      killing_ = true;
      signal_all(SIGKILL);
    } else if (since.count() > options_.grace_s && !asked_) {
      asked_ = true;
      signal_all(SIGTERM);
    }
  }

  [[nodiscard]] int worst_code() const {
    constexpr int kInterrupted = 128 + SIGINT;
    int worst = interrupted_ && killing_ ? kInterrupted : 0;
    for (const Rank& rank : ranks_) {
      if (!rank.ended_by_us) worst = std::max(worst, *rank.code);
    }
    return worst;
  }

  const LaunchOptions& options_;
  std::vector<cpu_set_t> affinities_;
  std::vector<Rank> ranks_;
  std::unique_ptr<ControlServer> server_;
  std::string token_;
  std::optional<Clock::time_point> failed_at_;
  bool interrupted_ = false;
  bool asked_ = false;
  bool killing_ = false;
};

}  // namespace

std::vector<HostSlots> parse_hosts(const std::string& text) {
  std::vector<HostSlots> hosts;
  for (const std::string& part : split(text, ',')) {
    const std::size_t colon = part.rfind(':');
    const auto slots =
        colon == std::string::npos ? std::optional(1) : whole_number(std::string_view(part).substr(colon + 1));
    const std::string name = part.substr(0, colon);
    const bool odd = name.empty() || name.front() == '-';  // would be an option of ssh
    if (!slots || *slots < 1 || odd) invalid("[launch] --hosts must read like a:4,b:4. Received \"{}\".", text);
    hosts.push_back({name, *slots});
  }
  return hosts;
}

std::vector<std::string> parse_cpus(const std::string& text) {
  return split(text, ';');
}

int launch(const LaunchOptions& options) {
  return Launcher(options).run();
}

}  // namespace hspmd

// SPDX-License-Identifier: Apache-2.0
// `train --rank-exec -- CMD…`: the parent of one MPI rank.
#pragma once

#include <csignal>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace entrypoint {

/// The signal that stands for the user's SIGUSR1 on its way through mpirun, which forwards it like
/// SIGUSR1 and SIGUSR2.
inline constexpr int kUserSignal1OverMpi = SIGALRM;

struct RankRequest {
  std::vector<std::string> command;
  std::filesystem::path command_file;  ///< more words of it, each ended by a NUL; empty: none
  bool sets_rank_variables = false;    ///< the command sees the names that torch reads
};

/// Starts the command in a process group of its own, with this host's environment, and ends as it
/// ends: with its exit code, or by its signal.
///
/// SIGUSR1 is the launcher's stop for ranks (mpirun forwards it to all of them; SIGTERM would make
/// mpirun kill them a second later): the group gets SIGTERM, once, however many stops arrive.
/// SIGTERM does the same; SIGINT, SIGHUP and SIGUSR2 are passed on, kUserSignal1OverMpi as SIGUSR1.
/// When mpirun's daemon dies, the group is killed. Blocks signals for good: nothing else may run in
/// this process. Throws as spawn(), and HostError when the file with the command cannot be read.
int run_rank(const RankRequest& request);

/// Takes Open MPI's libfabric transport out of our own choice of transports, for closing it costs
/// every rank a second's sleep at its end (MPI_Finalize; measured with 4.1.4), whether it was used
/// or not. It serves one-sided calls only, on fabrics that jobs like these do not have. Any other
/// choice is the user's and stays. Pure.
void leave_out_sleeping_transport(std::vector<std::string>& environment);

/// RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE as Open MPI's variables say; those that it did
/// not set stay as they are. Pure.
void set_rank_variables(std::vector<std::string>& environment);

/// SM_CURRENT_HOST on a host where no `train` runs to say it: the one of SM_HOSTS whose name starts
/// as this machine's. Nothing is set where it is set, or where none does. Pure.
void set_own_host(std::vector<std::string>& environment, std::string_view machine);

}  // namespace entrypoint

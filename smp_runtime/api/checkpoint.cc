// SPDX-License-Identifier: Apache-2.0
#include "smp/checkpoint.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "smp/version.h"
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include "smp_runtime/api/checkpoint_parts.h"
#include "smp_runtime/api/saved_folder.h"
#include "smp_runtime/api/session_core.h"
#include "smp_runtime/checkpoint/session/agreement.h"
#include "smp_runtime/checkpoint/session/checkpoint_save.h"
#include "smp_runtime/checkpoint/session/memory_checkpoints.h"
#include "smp_runtime/checkpoint/staging.h"
#include "smp_runtime/checkpoint/state/file_content.h"
#include "smp_runtime/checkpoint/state/objects.h"
#include "smp_runtime/checkpoint/state/owned_state.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"

namespace smp {
namespace {

using api::OptimizerFields;
using api::ParameterNames;
using api::SavedFolder;
using checkpoint::FileContent;
using checkpoint::SavedState;

constexpr const char* kSave = "smp::save_checkpoint";
constexpr const char* kResume = "smp::resume_from_checkpoint";
constexpr const char* kPartition = "partition.json";

void check_tag(const std::string& tag) {
  if (!tag.empty() && !tag.starts_with('.') && tag.find('/') == std::string::npos) return;
  throw ConfigError("{}: tag \"{}\" is no file name; give one that begins with no dot", kSave, tag);
}

std::filesystem::path folder_of(const std::filesystem::path& root, std::string name) {
  if (name.empty()) {
    const std::filesystem::path newest = root / checkpoint::kNewest;
    if (!std::filesystem::is_regular_file(newest)) {
      throw ConfigError(
          "{}: no tag was given, and {}, which names the newest checkpoint, is not there", kResume,
          newest.string());
    }
    name = checkpoint::read_file(newest);
    name.erase(name.find_last_not_of(" \n") + 1);
  } else if (!name.ends_with(checkpoint::kPartial)) {
    name += checkpoint::kPartial;
  }
  const std::filesystem::path folder = checkpoint::locate(root, name, name);
  if (std::filesystem::is_directory(folder)) return folder;
  throw ConfigError("{}: there is no checkpoint in parts {}", kResume, (root / name).string());
}

/// Loads what was read, after it was compared.
class Loader {
 public:
  Loader(DistributedModel::Core& model, DistributedOptimizer::Core* optimizer,
         const SavedFolder& folder)
      : model_(model),
        optimizer_(optimizer),
        folder_(folder),
        saved_(folder.state()),
        names_(model.units()) {}

  void check() const {
    for (const auto& parameter : model_.parameters()) {
      folder_.check_value(names_.of(parameter), parameter.sizes());
    }
    for (std::size_t number = 0; number < model_.units().size(); ++number) {
      if (!model_.is_here(number)) continue;
      const Unit& unit = model_.units()[number];
      for (const auto& [name, buffer] : unit.buffers) {
        folder_.check_value(fmt::format("{}.{}", unit.name, name), buffer.sizes());
      }
    }
    if (optimizer_ == nullptr) return;
    folder_.check_kind(api::fields_of(optimizer_->wrapped()).kind());
    if (saved_.groups().size() != optimizer_->groups().size()) {
      throw ConfigError("{} has {} groups of parameters, and this optimizer {}", saved_.where(),
                        saved_.groups().size(), optimizer_->groups().size());
    }
    for (std::size_t group = 0; group < optimizer_->groups().size(); ++group) {
      for (const at::Tensor& parameter : optimizer_->groups()[group])
        check_member(parameter, group);
    }
    check_states();
  }

  /// Collective over the ranks that share state.
  void load() {
    const at::NoGradGuard no_grad;
    api::ModelState* const state = model_.state();
    for (at::Tensor parameter : model_.parameters()) {
      const at::Tensor value = folder_.value_of(names_.of(parameter), parameter.sizes());
      const int number = state == nullptr ? -1 : state->number_of(parameter);
      if (number < 0) {
        parameter.copy_(value);
      } else {
        state->store().assign(number, value);
      }
    }
    for (std::size_t number = 0; number < model_.units().size(); ++number) {
      if (!model_.is_here(number)) continue;
      const Unit& unit = model_.units()[number];
      for (auto [name, buffer] : unit.buffers) {
        buffer.copy_(folder_.value_of(fmt::format("{}.{}", unit.name, name), buffer.sizes()));
      }
    }
    if (optimizer_ != nullptr) load_optimizer();
    if (state != nullptr) state->store().publish();
  }

 private:
  void check_member(const at::Tensor& parameter, std::size_t group) const {
    const std::string& name = names_.of(parameter);
    const auto& names = saved_.groups()[group].names;
    if (std::ranges::find(names, name) != names.end()) return;
    throw ConfigError("{}: \"{}\" is not in group {} of the optimizer that was saved",
                      saved_.where(), name, group);
  }

  /// Checks that all states which load_optimizer() reads are there.
  void check_states() const {
    if (optimizer_->masters() == nullptr) {
      for (const auto& group : optimizer_->groups()) {
        for (const at::Tensor& parameter : group) {
          folder_.check_state(names_.of(parameter), 0, parameter.numel());
        }
      }
      return;
    }
    for (const auto& run : optimizer_->masters()->runs()) {
      for (const sharding::OwnedPiece& piece : run.pieces) {
        folder_.check_state(names_.of(parameter_of(piece)), piece.start, piece.elements);
      }
    }
  }

  [[nodiscard]] const at::Tensor& parameter_of(const sharding::OwnedPiece& piece) const {
    return model_.state()->parameters()[static_cast<std::size_t>(piece.parameter)].tensor;
  }

  void load_optimizer() {
    torch::optim::Optimizer& wrapped = optimizer_->wrapped();
    const OptimizerFields& fields = api::fields_of(wrapped);
    wrapped.state().clear();
    for (std::size_t group = 0; group < saved_.groups().size(); ++group) {
      fields.put_settings(wrapped.param_groups()[group], api::settings_of(saved_.groups()[group]));
    }
    if (optimizer_->masters() == nullptr) {
      for (const auto& group : optimizer_->groups()) {
        for (const at::Tensor& parameter : group) load_whole(wrapped, fields, parameter);
      }
      return;
    }
    const std::vector<std::string> names = names_.of_all(model_.state()->parameters());
    for (const auto& run : optimizer_->masters()->runs()) {
      const auto state = api::state_from(checkpoint::state_of_run(saved_, run, names));
      if (!state.empty()) fields.put_state(wrapped, run.parameter, state);
    }
    if (saved_.loss_scale() && model_.session().config().fp16) {
      optimizer_->scaler().restore(*saved_.loss_scale());
    }
  }

  void load_whole(torch::optim::Optimizer& wrapped, const OptimizerFields& fields,
                  const at::Tensor& parameter) const {
    api::ParameterState state = api::state_from(saved_.whole_state(names_.of(parameter)));
    for (auto& [key, values] : state.tensors) values = values.to(parameter.device());
    if (!state.empty()) fields.put_state(wrapped, parameter, state);
  }

  DistributedModel::Core& model_;
  DistributedOptimizer::Core* const optimizer_;
  const SavedFolder& folder_;
  const SavedState& saved_;
  const ParameterNames names_;
};

DistributedOptimizer::Core* core_of(DistributedOptimizer* optimizer) {
  return optimizer == nullptr ? nullptr : optimizer->core().get();
}

/// This rank's files of a save.
class Parts {
 public:
  /// Collective over the job.
  Parts(Session& session, const DistributedModel& model, const CheckpointContent& content,
        checkpoint::CheckpointSave::Options options)
      : saves_(session.core()->saves()) {
    DistributedOptimizer::Core* const optimizer = core_of(content.optimizer);
    if (optimizer != nullptr) api::fields_of(optimizer->wrapped());  // throws on all ranks alike
    const at::NoGradGuard no_grad;
    options.library = version();
    options.tidies = !saves_.are_under_way();
    save_ =
        std::make_shared<checkpoint::CheckpointSave>(session.core()->session(), std::move(options));
    parts_ = api::parts_of(*model.core(), optimizer);
    if (!save_->publishes()) return;
    partition_ = model.core()->assignment().to_json();
    if (!content.user_content.isNone()) {
      parts_.push_back({.file = "user_content.pt", .object = content.user_content});
    }
  }

  /// Returns the save, to be published.
  checkpoint::CheckpointSave& write() {
    save_->together([&] {
      for (api::CheckpointPart& part : parts_) {
        save_->add(checkpoint::write_object(save_->folder() / part.file, part.object));
        part.object = {};
      }
      if (save_->publishes()) {
        save_->add(checkpoint::write_file(save_->folder() / kPartition, partition_));
      }
    });
    return *save_;
  }

  /// Copies them; a thread writes them, and calls `publish`.
  void write_later(std::function<void(checkpoint::CheckpointSave&)> publish) {
    const at::NoGradGuard no_grad;
    std::vector<std::shared_ptr<FileContent>> files;
    save_->together([&] {
      for (api::CheckpointPart& part : parts_) {
        files.push_back(FileContent::of_object(part.file, part.object, saves_.memory()));
        part.object = {};
      }
      if (save_->publishes()) {
        files.push_back(FileContent::text(kPartition, partition_));
      }
    });
    saves_.add(save_, std::move(files), std::move(publish));
  }

 private:
  checkpoint::BackgroundSaves& saves_;
  std::shared_ptr<checkpoint::CheckpointSave> save_;
  std::vector<api::CheckpointPart> parts_;
  std::string partition_;  ///< where this rank publishes
};

/// The folder of the newest checkpoint in memory, with all its files here; empty where there is
/// none or a host has no room. Collective over the job.
std::filesystem::path fetched_from_memory(session::Session& session,
                                          checkpoint::MemoryCheckpoints& memory) {
  try {
    const std::filesystem::path folder = memory.newest(kResume);
    if (folder.empty()) return {};
    std::vector<std::string> names;
    checkpoint::together(session, kResume, [&] {
      const std::filesystem::path listed = folder / "manifest.json";
      for (const checkpoint::FileDigest& file :
           checkpoint::Manifest::from_json(checkpoint::read_file(listed), listed.string()).files) {
        names.push_back(file.name);
      }
    });
    memory.fetch(kResume, folder, names);
    return folder;
  } catch (const checkpoint::CheckpointError& error) {
    SMP_LOG(warning, "the state in memory is not used, but a checkpoint on the disk: {}",
            error.what());
    return {};
  }
}

}  // namespace

void save_checkpoint(Session& session, const std::filesystem::path& folder,
                     const DistributedModel& model, const CheckpointContent& content) {
  check_tag(content.tag);
  if (content.keep < 0) {
    throw ConfigError("smp::save_checkpoint got keep={}; expected how many stay, 0 for all",
                      content.keep);
  }
  const auto begin = std::chrono::steady_clock::now();
  checkpoint::BackgroundSaves& saves = session.core()->saves();
  if (content.blocking) {
    saves.wait();
  } else {
    saves.await_room();
  }
  Parts parts(session, model, content,
              {.what = kSave, .root = folder, .name = content.tag + checkpoint::kPartial});
  const auto kept = content.keep == 0 ? std::nullopt : std::optional(content.keep);
  const auto publish = [kept](checkpoint::CheckpointSave& written) {
    written.publish_folder(kept);
  };
  if (content.blocking) {
    publish(parts.write());
  } else {
    parts.write_later(publish);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  session.core()->reports().event(
      "checkpoint", fmt::format("{}, {:.1f} s{}", content.tag, took.count(),
                                content.blocking ? "" : " to copy it; a thread writes it"));
}

void checkpoint_in_memory(Session& session, const std::filesystem::path& folder,
                          const DistributedModel& model, const CheckpointContent& content) {
  checkpoint::MemoryCheckpoints* const memory = session.core()->memory_of(folder);
  if (memory == nullptr || !memory->is_due(session.core()->saves())) return;
  Parts(session, model, content,
        {.what = "smp::checkpoint_in_memory",
         .root = memory->root(),
         .name = memory->next_name(),
         .by_host = true})
      .write_later([memory](checkpoint::CheckpointSave& written) { memory->publish(written); });
}

void wait_for_saves(Session& session) { session.core()->saves().wait(); }

bool has_checkpoint(Session& session, const std::filesystem::path& folder) {
  session::Session& job = session.core()->session();
  session.core()->saves().wait();
  checkpoint::MemoryCheckpoints* const memory = session.core()->memory_of(folder);
  if (memory != nullptr && !memory->newest("smp::has_checkpoint").empty()) return true;
  std::error_code unreadable;  // resuming says why, on all ranks
  const bool is_there =
      job.ranks().rank == 0 && std::filesystem::exists(folder / checkpoint::kNewest, unreadable);
  at::Tensor answer = at::tensor({is_there ? 1.0F : 0.0F});
  if (job.ranks().size > 1) {
    job.all_reduce("smp::has_checkpoint", answer, *job.groups().cpu_group(topology::Group::kWorld),
                   c10d::ReduceOp::MAX);
  }
  return answer.item<float>() != 0;
}

c10::IValue resume_from_checkpoint(Session& session, const std::filesystem::path& folder,
                                   DistributedModel& model, const ResumeOptions& options) {
  session::Session& job = session.core()->session();
  session.core()->saves().wait();
  std::optional<SavedFolder> saved;
  std::optional<Loader> loader;
  checkpoint::MemoryCheckpoints* const memory = session.core()->memory_of(folder);
  const std::filesystem::path kept = memory != nullptr && options.tag.empty()
                                         ? fetched_from_memory(job, *memory)
                                         : std::filesystem::path{};
  checkpoint::together(job, kResume, [&] {
    saved.emplace(kept.empty() ? folder_of(folder, options.tag) : kept);
    loader.emplace(*model.core(), core_of(options.optimizer), *saved);
    loader->check();
  });
  loader->load();
  session.core()->reports().event(
      "resumed",
      fmt::format("from {}",
                  (folder / (options.tag.empty() ? "the newest" : options.tag)).string()));
  return saved->user_content();
}

}  // namespace smp

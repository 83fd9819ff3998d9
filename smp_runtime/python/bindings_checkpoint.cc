// SPDX-License-Identifier: Apache-2.0
// Python's view of smp_runtime/checkpoint. Its errors arrive as SMPCheckpointError.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>
#include <pybind11/typing.h>
#include <torch/csrc/utils/pybind.h>

#include "smp_runtime/checkpoint/atomic_file.h"
#include "smp_runtime/checkpoint/manifest.h"
#include "smp_runtime/checkpoint/session/agreement.h"
#include "smp_runtime/checkpoint/session/background_saves.h"
#include "smp_runtime/checkpoint/session/checkpoint_save.h"
#include "smp_runtime/checkpoint/session/memory_checkpoints.h"
#include "smp_runtime/checkpoint/staging.h"
#include "smp_runtime/checkpoint/state/file_content.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/python/bindings.h"

namespace smp::python {
namespace {

namespace py = pybind11;
namespace fs = std::filesystem;
using checkpoint::AtomicFile;
using checkpoint::BackgroundSaves;
using checkpoint::CheckpointSave;
using checkpoint::FileContent;
using checkpoint::FileDigest;
using checkpoint::Manifest;
using TextOrBytes = py::typing::Union<py::str, py::bytes>;
using checkpoint::MemoryCheckpoints;

/// As with_files, without Python's lock.
template <typename Act>
auto checked(const Act& act) {
  const py::gil_scoped_release no_gil;
  return checkpoint::with_files(act);
}

void write_buffer(AtomicFile& file, const py::typing::Union<py::bytes, py::memoryview>& data) {
  const py::buffer_info info = py::buffer(data).request();
  const auto* begin = static_cast<const std::byte*>(info.ptr);
  const auto bytes = static_cast<std::size_t>(info.size * info.itemsize);
  checked([&] { file.write(std::span(begin, bytes)); });
}

}  // namespace

void bind_checkpoint(py::module_& module) {
  const auto without_gil = py::call_guard<py::gil_scoped_release>();
  module.attr("PARTIAL") = checkpoint::kPartial;
  module.attr("NEWEST") = checkpoint::kNewest;

  py::class_<FileDigest>(module, "FileDigest", "Name, size and checksum of a file as written.")
      .def_readonly("name", &FileDigest::name)
      .def_readonly("bytes", &FileDigest::bytes)
      .def_readonly("crc32c", &FileDigest::crc32c);

  py::class_<AtomicFile>(module, "AtomicFile",
                         "A file that is there whole or not at all; checkpoint/atomic_file.h.")
      .def(py::init([](const fs::path& path) {
             return checked([&] { return std::make_unique<AtomicFile>(path); });
           }),
           py::arg("path"))
      .def("write", &write_buffer, py::arg("data"))
      .def(
          "commit", [](AtomicFile& file) { return checked([&] { return file.commit(); }); },
          "Makes what was written durable, and the file appear.");

  py::class_<Manifest>(module, "Manifest",
                       "Which files belong to a checkpoint, and the degrees of its job;\n"
                       "checkpoint/manifest.h.")
      .def_property_readonly("pp", [](const Manifest& m) { return m.degrees.pipeline; })
      .def_property_readonly("tp", [](const Manifest& m) { return m.degrees.tensor; })
      .def_property_readonly("rdp", [](const Manifest& m) { return m.degrees.reduced_data; })
      .def_readonly("tag", &Manifest::tag)
      .def_readonly("library", &Manifest::library, "The version that wrote it.")
      .def_readonly("files", &Manifest::files)
      .def_static(
          "read",
          [](const fs::path& path) {
            return checked(
                [&] { return Manifest::from_json(checkpoint::read_file(path), path.string()); });
          },
          py::arg("path"))
      .def(
          "__contains__",
          [](const Manifest& m, const std::string& name) { return m.find(name) != nullptr; },
          py::arg("name"))
      .def(
          "verify",
          [](const Manifest& m, const fs::path& path) {
            const FileDigest* expected = m.find(path.filename().string());
            SMP_CHECK(expected != nullptr, "{} is not in its manifest", path.string());
            checked([&] { checkpoint::verify_file(path, *expected); });
          },
          py::arg("path"), "Raises SMPCheckpointError where size or checksum are not as written.");

  module.def(
      "digest_of",
      [](const fs::path& path) { return checked([&] { return checkpoint::digest_of(path); }); },
      py::arg("path"), "Reads the file once.");
  module.def(
      "write_file",
      [](const fs::path& path, const TextOrBytes& text) {
        return checked([&, content = text.cast<std::string>()] {
          return checkpoint::write_file(path, content);
        });
      },
      py::arg("path"), py::arg("text"), "Writes it as AtomicFile does.");
  module.def(
      "end_together",
      [](session::Session& session, const std::string& what, const std::string& error) {
        checkpoint::end_together(checkpoint::gather_by(session), what, error);
      },
      py::arg("session"), py::arg("what"), py::arg("error"), without_gil,
      "At the end of a part that all ranks end: ``error`` is what failed here, or empty. Raises\n"
      "SMPCheckpointError that names the first rank that failed.");
  py::class_<CheckpointSave, std::shared_ptr<CheckpointSave>>(
      module, "CheckpointSave",
      "One save of a checkpoint by all ranks, or none: what is not published leaves nothing\n"
      "behind; checkpoint/session/checkpoint_save.h.")
      .def(py::init([](session::Session& session, std::string what, fs::path root, std::string name,
                       std::string library, bool tidies, bool by_host) {
             try {
               return std::make_shared<CheckpointSave>(
                   session, CheckpointSave::Options{.what = std::move(what),
                                                    .root = std::move(root),
                                                    .name = std::move(name),
                                                    .library = std::move(library),
                                                    .tidies = tidies,
                                                    .by_host = by_host});
             } catch (const ConfigError& error) {
               throw checkpoint::CheckpointError("{}", error.what());
             }
           }),
           py::arg("session"), py::arg("what"), py::arg("root"), py::arg("name"),
           py::arg("library"), py::arg("tidies"), py::arg("by_host"), without_gil)
      .def_property_readonly("folder", &CheckpointSave::folder)
      .def_property_readonly(
          "publishes", &CheckpointSave::publishes,
          "Whether this rank makes the checkpoint visible: one does in each folder, which is one\n"
          "in the job where all hosts see the same folder.")
      .def("add", &CheckpointSave::add, py::arg("file"),
           "This rank has written a file into ``folder``.")
      .def("tell", &CheckpointSave::tell, py::arg("error"), without_gil,
           "Tells the others what failed here, empty if nothing, and hears what failed there.\n"
           "Blocks until all have told; raises SMPCheckpointError where one failed.")
      .def("publish_folder", &CheckpointSave::publish_folder, py::arg("kept") = py::none(),
           without_gil,
           "The folder becomes the checkpoint, in one step, and the oldest ones go beyond "
           "``kept``.\n"
           "Collective.")
      .def("publish_files", &CheckpointSave::publish_files, py::arg("manifest"), without_gil,
           "Its files become files of ``root``, with a manifest of that name. Collective.");
  module.def("locate", &checkpoint::locate, py::arg("root"), py::arg("name"), py::arg("entry"),
             "Where ``entry`` of the checkpoint ``name`` is to be read, also where a save was\n"
             "killed.");
  py::class_<BackgroundSaves> of_saves(module, "BackgroundSaves",
                                       "Saves that a thread of the runtime writes and publishes;\n"
                                       "checkpoint/session/background_saves.h.");
  py::class_<FileContent, std::shared_ptr<FileContent>>(
      module, "FileContent",
      "The content of a file: as it was at one moment, or as it is when it is written;\n"
      "checkpoint/state/file_content.h.")
      .def_static(
          "archive",
          [](std::string name, const py::bytes& pickle,
             const std::optional<const BackgroundSaves*> saves) {  // its signature has None then
            return FileContent::archive(std::move(name), std::string(pickle),
                                        saves ? (*saves)->memory() : nullptr);
          },
          py::arg("name"), py::arg("pickle"), py::arg("saves") = py::none(),
          "A file of torch.save. Its storages follow: copied where it is for ``saves``, else\n"
          "referred to.")
      .def_static(
          "text",
          [](std::string name, const TextOrBytes& text) {
            return FileContent::text(std::move(name), text.cast<std::string>());
          },
          py::arg("name"), py::arg("text"))
      .def("add_storage", &FileContent::add_storage, py::arg("bytes"), without_gil,
           "The bytes of the storage that the pickle calls by the next number.")
      .def(
          "write",
          [](const FileContent& content, const fs::path& folder) {
            return checked([&] { return content.write(folder); });
          },
          py::arg("folder"));
  py::class_<MemoryCheckpoints, std::shared_ptr<MemoryCheckpoints>>(
      module, "MemoryCheckpoints",
      "Checkpoints in the memory of the job's hosts; checkpoint/session/memory_checkpoints.h.")
      .def(py::init<session::Session&, const fs::path&>(), py::arg("session"), py::arg("path"),
           py::keep_alive<1, 2>(), without_gil)
      .def_property_readonly("root", &MemoryCheckpoints::root)
      .def("is_due", &MemoryCheckpoints::is_due, py::arg("saves"), without_gil,
           "Counts a call; true for those at which a state is to be kept, while none of ``saves``\n"
           "is under way. Collective; raises what a save failed with.")
      .def("next_name", &MemoryCheckpoints::next_name, "The name of the next save.")
      .def(
          "newest",
          [](MemoryCheckpoints& memory, const std::string& what) -> std::optional<fs::path> {
            const fs::path folder = memory.newest(what);
            return folder.empty() ? std::nullopt : std::optional(folder);
          },
          py::arg("what"), without_gil,
          "The folder here of the newest that the hosts together hold whole, with its manifest.\n"
          "Collective.")
      .def("fetch", &MemoryCheckpoints::fetch, py::arg("what"), py::arg("folder"), py::arg("files"),
           without_gil,
           "Has ``files`` of that folder here. Collective; raises SMPCheckpointError on all ranks\n"
           "where a host has no room.");
  of_saves
      .def(py::init<session::Session&, int>(), py::arg("session"), py::arg("limit"),
           py::keep_alive<1, 2>())
      .def_property_readonly("are_under_way", &BackgroundSaves::are_under_way)
      .def("await_room", &BackgroundSaves::await_room, without_gil,
           "Blocks until another save may begin. Raises what an earlier one failed with.")
      .def(
          "add_folder",
          [](BackgroundSaves& saves, std::shared_ptr<CheckpointSave> save,
             std::vector<std::shared_ptr<FileContent>> files, std::optional<int> kept) {
            saves.add(std::move(save), std::move(files),
                      [kept](CheckpointSave& written) { written.publish_folder(kept); });
          },
          py::arg("save"), py::arg("files"), py::arg("kept"), without_gil,
          "Writes the files into the folder of ``save``, which becomes the checkpoint.")
      .def(
          "add_in_memory",
          [](BackgroundSaves& saves, std::shared_ptr<CheckpointSave> save,
             std::vector<std::shared_ptr<FileContent>> files,
             std::shared_ptr<MemoryCheckpoints> memory) {
            saves.add(std::move(save), std::move(files),
                      [memory = std::move(memory)](CheckpointSave& written) {
                        memory->publish(written);
                      });
          },
          py::arg("save"), py::arg("files"), py::arg("memory"), without_gil,
          "Writes the files into the folder of ``save``, which becomes a checkpoint of ``memory``.")
      .def(
          "add_files",
          [](BackgroundSaves& saves, std::shared_ptr<CheckpointSave> save,
             std::vector<std::shared_ptr<FileContent>> files, std::string manifest) {
            saves.add(std::move(save), std::move(files),
                      [manifest = std::move(manifest)](CheckpointSave& written) {
                        written.publish_files(manifest);
                      });
          },
          py::arg("save"), py::arg("files"), py::arg("manifest"), without_gil,
          "Writes the files, which become files of the root of ``save``.")
      .def("wait", &BackgroundSaves::wait, without_gil,
           "Blocks until all are published. Raises what one failed with.")
      .def("close", &BackgroundSaves::close, without_gil, "Gives up what is not published.")
      .def_property_readonly(
          "memory_bytes", [](const BackgroundSaves& saves) { return saves.memory()->bytes(); },
          "Bytes of all copies, and of those that are kept for the next.");
}

}  // namespace smp::python
